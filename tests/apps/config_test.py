# SPDX-License-Identifier: MIT
# tests/apps/config_test.py - flags from files and the environment, --print-config, --completion and --model-summary.
# Read first: program.py.
import os
import re
import tomllib
import unittest

from program import TINY, ProgramTest, execute, main, requires_mpi, settings

# As TINY says it.
TINY_FILE = """
# A comment, and both ways to write a key.
model = "mlp"
synthetic = 64
batch_size = 8
threads = 1  # A comment behind a value.
lr = 0.01
limit-test = 10
"""


class ConfigTest(ProgramTest):
    def file(self, text, name="run.toml"):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def printed(self, *arguments, **how):
        """The configuration in effect, as text and as Python's TOML reader sees it."""
        run = self.run_program(*arguments, "--print-config", **how)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return run.out, tomllib.loads(run.out)


class Sources(ConfigTest):
    def test_a_file_is_as_good_as_flags(self):
        flags = self.run_program(*TINY, "--steps=4", "--nesterov", "--net=1gbit,50us", "--bucket-mb=0.1,4", "-q")
        path = self.file(TINY_FILE + 'steps = 4\nnesterov = true\nnet = "1gbit,50us"\nbucket-mb = [0.1, 4]\n'
                                     'quiet = true\n')
        from_file = self.run_program("--config", path)
        self.assertEqual((from_file.code, from_file.err), (0, ""), from_file)
        self.assertEqual(from_file.sha, flags.sha)
        self.assertNotIn("\nstep ", from_file.out)

    def test_flags_come_before_variables_and_these_before_the_file(self):
        path = self.file("batch-size = 4\nlr = 0.25\nmomentum = 0.5\n")
        _, config = self.printed("--config", path, "--batch-size=16", BRIGADE_BATCH_SIZE="8", BRIGADE_LR="0.5")
        self.assertEqual((config["batch-size"], config["lr"], config["momentum"], config["seed"]), (16, 0.5, 0.5, 0))
        self.assertEqual(self.printed("--config", path)[1]["lr"], 0.25)
        self.assertEqual(self.printed()[1]["lr"], 0.01)
        # The default, said by a variable, is said.
        self.assertEqual(self.printed("--config", path, BRIGADE_LR="0.01")[1]["lr"], 0.01)
        self.assertEqual(self.printed(BRIGADE_CONFIG=str(path))[1]["momentum"], 0.5)
        self.assertEqual(self.printed(BRIGADE_LR="")[1]["lr"], 0.01, "an empty variable is none")

    def test_switches_can_be_put_back(self):
        path = self.file("nesterov = true\nno-augment = true\n")
        self.assertTrue(self.printed("--config", path)[1]["nesterov"])
        self.assertFalse(self.printed("--config", path, "--nesterov=false")[1]["nesterov"])
        config = self.printed("--config", path, BRIGADE_NESTEROV="0")[1]
        self.assertEqual((config["nesterov"], config["no-augment"]), (False, True))

    def test_who_comes_first_decides_between_alternatives(self):
        path = self.file("epochs = 5\nsynthetic = 64\nquiet = true\n")
        config = self.printed("--config", path, "--steps=3", "--verbose", f"--data={self.folder}")[1]
        self.assertEqual(config["steps"], 3)
        self.assertTrue(config["verbose"])
        for key in ("epochs", "synthetic", "quiet"):
            self.assertFalse(config.get(key), key)
        self.assertNotIn("steps", self.printed("--config", self.file("steps = 7"), BRIGADE_EPOCHS="2")[1])

    def test_what_is_printed_says_where_from_and_reads_back(self):
        path = self.file('net = "1gbit,50us"\nbucket-mb = [1, 4]\nout = "a b"\nplan = "size"\n')
        text, config = self.printed("--config", path, *TINY, "--nesterov", BRIGADE_SEED="7")
        self.assertEqual(config["bucket-mb"], [1, 4])
        self.assertRegex(text, r'(?m)^net = "1gbit,50us"  # .*run\.toml$')
        self.assertRegex(text, r"(?m)^seed = 7  # BRIGADE_SEED$")
        self.assertRegex(text, r"(?m)^nesterov = true  # --nesterov$")
        self.assertRegex(text, r"(?m)^momentum = 0\.9$")
        self.assertEqual(self.printed("--config", self.file(text, "again.toml"))[1], config)
        for arguments in ((), ("--synthetic",), ("--sync=naive", "--model=mlp"), ("--steps=9", "-v")):
            text, config = self.printed(*arguments)
            self.assertEqual(self.printed("--config", self.file(text, "again.toml"))[1], config, arguments)
        # And trains the same.
        path = self.file(self.printed(*TINY, "--steps=3", "--seed=5")[0])
        self.assertEqual(self.run_program("--config", path).sha, self.run_program(*TINY, "--steps=3", "--seed=5").sha)

    def test_a_value_that_no_file_can_carry_is_refused(self):
        self.refuse(2, "--out: a file for --config cannot carry a#b", *TINY, "--out=a#b", "--print-config")

    def test_variables_that_mean_nothing_are_told_once(self):
        for how in ({}, {"ranks": 2}) + (({"mpi": 2},) if settings.mpi else ()):
            run = self.run_program(*TINY, "--steps=1", BRIGADE_BATCHSIZE="3", BRIGADE_HOST="here", BRIGADE_BUILD="b",
                                   **how)
            self.assertEqual(run.code, 0, run)
            self.assertEqual(re.findall(r"(?m)^train_resnet18: warning: (.*)$", run.err),
                             ["BRIGADE_BATCHSIZE is no flag's variable; ignored"], run)

    def test_the_variable_for_data_comes_before_the_file_but_not_before_synthetic_images(self):
        nowhere = str(self.folder / "nowhere")
        path = self.file(f'data = "{self.folder}"\n')
        self.assertIn("data", self.printed("--config", path)[1])
        self.assertNotIn("data", self.printed("--config", path, BRIGADE_DATA=nowhere)[1])
        synthetic = self.file("synthetic = 64")
        self.assertEqual(self.printed("--config", synthetic, BRIGADE_DATA=nowhere)[1]["synthetic"], 64)

    def test_config_json_holds_what_was_in_effect(self):
        run = self.train("--steps=1", BRIGADE_SEED="9")
        self.assertEqual(run.config["seed"], 9)


class Mistakes(ConfigTest):
    def bad(self, pattern, text, *arguments):
        self.refuse(2, r"^train_resnet18: " + pattern, "--config", self.file(text), *arguments)

    def test_in_files(self):
        self.bad(r"--config .*run\.toml: unknown key batchsize; choose from .*batch-size.*verbose", "batchsize = 3")
        for key in ("print-config", "config", "help", "model-summary"):
            self.bad(f"--config .*: unknown key {key};", f"{key} = true")
        self.bad(r"--config .*run\.toml: has keys only, no sections; got \[model\]", "[model]\nlr = 1")
        self.bad("--config .*: lr: takes one value", "lr = [1, 2]")
        self.bad("--config .*: line 2: a quote or a bracket is not closed; got net = \"1gbit,1us",
                 'epochs = 2\nnet = "1gbit,1us')
        self.bad("--config .*: line 1: a quote or a bracket is not closed", "bucket-mb = [1, 2")
        self.bad("--config .*: line 2: says nothing; got  lr;", "epochs = 2\n lr\n")
        self.bad("--config .*: out: takes one value.*quotes", "out = a b")
        self.bad("--lr: needs a value; got an empty one", "lr =\nmodel = mlp")
        self.bad("--config .*: lr: set twice", "lr = 1\nseed = 2\nlr = 1")
        self.bad(r"--lr: .*fast; --lr comes from .*run\.toml", "lr = fast")
        self.bad(r'--nesterov: needs true or false; got "maybe"; --nesterov comes from .*run\.toml', "nesterov = maybe")
        self.bad(r"--model: banana not in {resnet18,.*; --model comes from .*run\.toml", 'model = "banana"')
        self.bad(r"--epochs and --steps .*; --epochs comes from .*; --steps comes from ", "epochs = 2\nsteps = 3")

    def test_in_several_places_at_once(self):
        self.bad(r"--plan: needs --sync bucketed; got --sync flat; --sync comes from .*run\.toml;", 'sync = "flat"',
                 "--plan=size")
        self.refuse(2, "--optimizer: x not in {sgd,.*; --optimizer comes from BRIGADE_OPTIMIZER", *TINY,
                    BRIGADE_OPTIMIZER="x")

    def test_files_that_cannot_be_read(self):
        self.refuse(2, "--config .*nowhere: cannot be read", "--config", self.folder / "nowhere")
        self.refuse(2, "--config .*: must be a regular file; got a directory", "--config", self.folder)
        # One without a writer would keep its reader for ever, the other has no end.
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for flag, code in (("--config", 2), ("--plan", 2), ("--init", 1)):
            for path, kind in ((pipe, "pipe"), ("/dev/zero", "device")):
                self.refuse(code, f": must be a regular file; got a {kind}", flag, path, *TINY)


class Summary(ConfigTest):
    ROW = r"(?m)^({}) +(\w+) +(\[[\d, ]+\]) +([\d,]+|-) +([\d,]+|-) +([\d,-]+|-) +([\d,-]+|-)$"

    def summary(self, *arguments, **how):
        run = self.run_program("--model-summary", *arguments, **how)
        self.assertEqual((run.code, run.err), (0, ""), run)
        rows = {row[0]: row[1:] for row in re.findall(self.ROW.format(r"\S+"), run.out)}
        totals = re.findall(r"(?m)^all +([\d,]+) +([\d,]+) +(\d+) +(\d+)$", run.out)
        self.assertEqual(len(totals), 1, run)
        return rows, [int(number.replace(",", "")) for number in totals[0]]

    def test_an_mlp_by_hand(self):
        for how in ({}, {"ranks": 2}) + (({"mpi": 2},) if settings.mpi else ()):
            rows, totals = self.summary("--model=mlp", **how)
            self.assertEqual(rows["layers.0"][:4], ("Linear", "[256]", f"{3072 * 256 + 256:,}", f"{3072 * 256:,}"))
            self.assertEqual(rows["layers.2"][:4], ("Linear", "[128]", f"{256 * 128 + 128:,}", f"{256 * 128:,}"))
            self.assertEqual(rows["layers.4"][:4], ("Linear", "[10]", f"{128 * 10 + 10:,}", f"{128 * 10:,}"))
            self.assertEqual(rows["layers.1"], ("ReLU", "[256]", "-", "-", "-", "-"))
            # Backward comes from behind.
            self.assertEqual([rows[f"layers.{i}"][4] for i in (0, 2, 4)], ["5-6", "3-4", "1-2"])
            products = 3072 * 256 + 256 * 128 + 128 * 10
            self.assertEqual(totals[:3], [products + 256 + 128 + 10, products, 6])

    def test_resnet18_has_the_known_size(self):
        rows, totals = self.summary()
        # Four stages of four 3x3 convolutions; the first one of stages 2 to 4 has half the channels to read, and beside
        # it stands a 1x1 convolution. A stage has a quarter of the pixels and twice the channels of the one before.
        parameters, products = 3 * 64 * 9, 3 * 64 * 9 * 32 * 32
        for stage in range(4):
            channels, pixels = 64 << stage, (32 >> stage) ** 2
            inputs = channels if stage == 0 else channels // 2
            weights = channels * 9 * (inputs + 3 * channels) + (channels * inputs if stage else 0)
            parameters += weights
            products += weights * pixels
        norms = 2 * (64 + sum((64 << stage) * (5 if stage else 4) for stage in range(4)))
        self.assertEqual(totals[0], parameters + norms + 512 * 10 + 10)
        self.assertEqual(totals[1], products + 512 * 10)
        self.assertEqual(totals[:3], [11_173_962, 555_422_720, 62])
        self.assertEqual(rows["layer2.0.downsample.0"][:4], ("Conv2d", "[128, 16, 16]", "8,192", "2,097,152"))
        self.assertEqual(rows["layer4.1.bn2"][:4], ("BatchNorm2d", "[512, 4, 4]", "1,024", "-"))
        self.assertEqual((rows["fc"][4], rows["conv1"][4]), ("1-2", "62"))
        self.assertNotIn("layer1.0.downsample", rows, "nothing ran there")
        # Buckets are numbered as they are sent; those of the last layers go first.
        self.assertEqual((rows["fc"][5], rows["conv1"][5]), ("0", str(totals[3] - 1)))

    def test_it_does_not_depend_on_how_a_model_is_trained(self):
        plain = self.summary("--limit-train=8")
        self.assertEqual(self.summary("--checkpoint-activations", "--batch-size=64", "--data=/nowhere"), plain)
        imagenet = self.summary("--stem=imagenet")[0]
        self.assertEqual(imagenet["conv1"][:4], ("Conv2d", "[64, 16, 16]", "9,408", f"{9408 * 256:,}"))
        self.assertEqual(imagenet["layer1"][1], "[64, 8, 8]")
        self.assertEqual(self.summary("--model=mlp", "--sync=flat")[1][3], 1)


class Completion(ConfigTest):
    def complete(self, *words):
        script = self.run_program("--completion", "bash").out
        line = " ".join(f"'{word}'" for word in ("train_resnet18", *words))
        code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _train_resnet18; echo \"${{COMPREPLY[@]}}\""
        return execute(["bash", "-c", code], 20).out.split()

    def test_flags_and_choices(self):
        self.assertEqual(self.complete("--lim"), ["--limit-train", "--limit-test"])
        self.assertEqual(self.complete("--model", "res"), ["resnet18", "resnet34"])
        self.assertEqual(self.complete("--sync", "=", "b"), ["bucketed"])
        self.assertEqual(self.complete("--sync", "="), ["naive", "flat", "per_parameter", "bucketed"])
        self.assertEqual(self.complete("--lr", ""), [])
        self.assertEqual(self.complete("--nesterov", "--batch"), ["--batch-size"])
        (self.folder / "folder").mkdir()
        self.assertEqual(self.complete("--out", str(self.folder / "fo")), [str(self.folder / "folder")])
        self.refuse(2, "--completion: fish not in {bash}", "--completion", "fish")


if __name__ == "__main__":
    main()
