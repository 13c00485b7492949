# SPDX-License-Identifier: MIT
# tests/apps/refusals_test.py - what the program must not accept: one clear line, exit code 2 for a mistake on the
# command line and 1 for anything found later, on every rank, within seconds. Read first: program.py.
import os
import unittest

from program import ROOT, TINY, ProgramTest, execute, last_wins, main, requires_mpi, settings

RECORD = 3073  # Bytes of a CIFAR-10 image with its label.
OFFICIAL = 10_000 * RECORD
TRAIN = [f"data_batch_{n}.bin" for n in range(1, 6)]


class Usage(ProgramTest):
    def usage(self, pattern, *arguments):
        return self.refuse(2, r"^train_resnet18: .*" + pattern, *arguments)

    def test_unknown_value_lists_the_choices(self):
        for flag, choices in {
                "--sync": ("naive", "flat", "per_parameter", "bucketed"),
                "--model": ("resnet18", "resnet34", "mlp"),
                "--schedule": ("constant", "step", "cosine", "one_cycle"),
                "--optimizer": ("sgd", "adamw", "lars"),
                "--plan": ("size", "auto"),
                "--comm-hook": ("none", "bf16", "powersgd"),
                "--divide": ("auto", "before", "split"),
                "--bn-buffers": ("broadcast", "sync_bn"),
                "--non-finite": ("error", "skip"),
                "--precision": ("f32", "bf16"),
                "--stem": ("cifar", "imagenet"),
                "--device": ("auto", "cpu", "cuda"),
                "--backend": ("auto", "threads"),
                "--algorithm": ("auto", "naive", "ring"),
        }.items():
            run = self.usage(f"{flag}.*banana", flag, "banana")
            for choice in choices:
                self.assertRegex(run.err, rf"\b{choice}\b", flag)

    def test_unknown_flag_or_stray_word_is_named(self):
        self.usage("--no-such-flag", "--no-such-flag")
        self.usage("stray", "--synthetic=64", "--steps=1", "stray")
        self.usage("argument 2 is empty", "--synthetic=64", "", "--steps=1")
        self.usage("--lr", "--synthetic=64", "--lr", "0.1", "--lr", "0.2")

    def test_impossible_combinations(self):
        self.usage("--nesterov.*sgd", *TINY, "--nesterov", "--optimizer=adamw")
        self.usage("--nesterov.*momentum", *TINY, "--nesterov", "--momentum=0")
        self.usage("--data excludes --synthetic", "--synthetic=64", "--data", self.folder)
        self.usage("--synthetic.*--cifar100", "--synthetic=64", "--cifar100")
        self.usage("--epochs.*--steps", *TINY, "--epochs=1", "--steps=1")
        self.usage("--stem.*resnet.*mlp", *TINY, "--stem=imagenet")
        self.usage("--device.*CUDA", *TINY, "--device=cuda")
        self.usage("--deterministic.*--algorithm", *TINY, "--deterministic", "--algorithm=ring")
        self.usage("--plan: needs --sync bucketed; got --sync flat", *TINY, "--plan=auto", "--sync=flat")
        self.usage("--net-schedule.*--net", *TINY, "--net-schedule=0:1gbit")
        self.usage("--bucket-mb: needs --sync bucketed", *TINY, "--sync=naive", "--bucket-mb=1")
        self.usage("--split-large: needs --plan size", *TINY, "--split-large")
        self.usage("--bucket-order: needs --plan size or auto", *TINY, "--plan=torch", "--bucket-order=forward")

    def test_bucket_caps_are_positive_numbers(self):
        for flag in ("--bucket-mb", "--first-bucket-mb"):
            for value in ("0", "-1", "nan", "banana", ""):
                self.usage(flag, *TINY, "--steps=1", f"{flag}={value}")

    def test_numbers_are_in_range_and_numbers(self):
        for flag, values in {
                "--batch-size": ("0", "-1", "1.5", "many"),
                "--ranks": ("0", "-2", "two", "99999999999"),
                "--epochs": ("0", "x"),
                "--steps": ("0", "-5"),
                "--accumulate": ("0",),
                "--threads": ("0", "-1"),
                "--limit-train": ("0",),
                "--limit-test": ("0", "-3"),
                "--eval-every": ("-1", "0.5"),
                "--lr": ("0", "-1", "nan", "fast"),
                "--momentum": ("-0.1", "1.5", "nan"),
                "--weight-decay": ("-1", "nan"),
                "--label-smoothing": ("-0.1", "1.1", "nan"),
                "--clip-norm": ("-1", "nan"),
                "--ema": ("-1", "2", "nan"),
                "--timeout": ("0", "nan"),
                "--seed": ("-1", "s"),
                "--synthetic": ("0", "-4", "12x"),
        }.items():
            for value in values:
                self.usage(flag, *TINY, "--steps=1" if flag != "--epochs" else "-q", f"{flag}={value}")

    def test_paths_are_not_empty(self):
        for flag in ("--data", "--out", "--save", "--init"):
            self.usage(flag, "--model=mlp", f"{flag}=")

    def test_the_tool_for_synthetic_files_has_the_same_codes(self):
        for arguments in ((), ("--out", self.folder, "--train=4"), ("--out", self.folder, "--test=0")):
            run = self.run_program(*arguments, program="make_synthetic_cifar")
            self.assertEqual(run.code, 2, run)
            self.assertRegex(run.err, "--out|--train|--test")
        (self.folder / "file").write_text("in the way")
        run = self.run_program("--out", self.folder / "file", "--train=5", "--test=1", program="make_synthetic_cifar")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, r"error: .*cannot create .*file")


class BadData(ProgramTest):
    def official_files(self):
        """A data set of the right sizes: records of label 0 and black pixels, as holes that take no disk."""
        folder = self.folder / "cifar-10-batches-bin"
        folder.mkdir(exist_ok=True)
        for name in (*TRAIN, "test_batch.bin"):
            self.resize(folder / name, OFFICIAL)
        return folder

    def resize(self, path, size):
        path.touch()
        os.truncate(path, size)

    def bad(self, pattern, *arguments):
        return self.refuse(1, "^error: .*" + pattern, "--model=mlp", "--batch-size=4", "--steps=1", "--limit-train=8",
                           "--limit-test=4", *arguments)

    def test_only_whole_files_of_the_official_size_are_read(self):
        folder = self.official_files()
        for name in ("data_batch_2.bin", "test_batch.bin"):
            for size in (0, 1, RECORD - 1, RECORD, RECORD + 1, OFFICIAL - 1, OFFICIAL + 1):
                self.resize(folder / name, size)
                run = self.bad(f"{folder / name}.* {OFFICIAL} .*got {size} bytes", "--data", self.folder)
                self.assertEqual("--allow-short" in run.err, False)
            self.resize(folder / name, OFFICIAL)

    def test_the_standard_set_has_fifty_thousand_images(self):
        self.official_files()
        run = self.train("--data", self.folder, "--steps=1", "--batch-size=4")
        self.assertIn("50000 training and 10 test images", run.out)

    def test_short_files_need_a_flag_and_are_still_whole_records(self):
        self.resize(folder_file := self.official_files() / "data_batch_1.bin", 8 * RECORD)
        self.bad(f"{folder_file}.*got {8 * RECORD} bytes", "--data", self.folder)
        self.train("--data", self.folder, "--allow-short", "--steps=1", "--batch-size=4", "--limit-train=8")
        for size in (0, 8 * RECORD - 1):
            self.resize(folder_file, size)
            self.bad(f"{folder_file}.*got {size} bytes", "--data", self.folder, "--allow-short")

    def test_missing_things_are_named(self):
        self.bad("nowhere", "--data", self.folder / "nowhere")
        (self.folder / "empty").mkdir()
        self.bad("data_batch_1.bin", "--data", self.folder / "empty")
        self.bad("train.bin", "--data", self.folder / "empty", "--cifar100")
        folder = self.official_files()
        (folder / "data_batch_5.bin").unlink()
        self.bad("missing file .*data_batch_5.bin", "--data", self.folder)

    def test_directory_in_place_of_a_file(self):
        folder = self.official_files()
        (folder / "data_batch_3.bin").unlink()
        (folder / "data_batch_3.bin").mkdir()
        self.bad("data_batch_3.bin.*directory", "--data", self.folder)
        self.bad("directory", "--data", folder / "test_batch.bin")

    def test_label_of_ten_is_named_with_its_record(self):
        folder = self.official_files()
        with open(folder / "data_batch_1.bin", "r+b") as file:
            file.seek(5 * RECORD)
            file.write(b"\x0a")
        self.bad(r"label of record 5 in .*data_batch_1.bin must be below 10; got 10", "--data", self.folder)

    def test_ranks_times_batch_beyond_the_samples(self):
        self.refuse(1, r"^error: .*samples.*got 64 samples, 1 ranks, batch_size 65", *TINY, "--batch-size=65")
        self.refuse(1, r"^(\[rank \d/3\] )?error: .*got 64 samples, 3 ranks, batch_size 22", *TINY,
                    "--batch-size=22", ranks=3)
        self.refuse(1, "accumulate.*8 batches; got 9", *TINY, "--accumulate=9")


class BadPlaces(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "file").write_text("in the way")
        self.arguments = (*TINY, "--steps=1")

    def test_state_of_another_model_lists_the_names(self):
        state = self.folder / "mlp.safetensors"
        self.train("--steps=1", "--save", state)
        self.refuse(1, "mlp.safetensors.*missing.*conv1.weight.*unexpected.*layers.0.weight", "--synthetic=64",
                    "--batch-size=2", "--steps=1", "--init", state)

    def test_state_that_is_not_whole(self):
        state, part = self.folder / "mlp.safetensors", self.folder / "part.safetensors"
        self.train("--steps=1", "--save", state)
        whole = state.read_bytes()
        for size in (0, 7, 8, 100, len(whole) - 1):
            part.write_bytes(whole[:size])
            self.refuse(1, "error: .*part.safetensors", *self.arguments, "--init", part)
        part.write_bytes(whole + b"\0")
        self.refuse(1, "error: .*part.safetensors.*trailing", *self.arguments, "--init", part)
        self.refuse(2, "nowhere", *self.arguments, "--init", self.folder / "nowhere")
        self.refuse(2, "is.* a directory|not.* exist", *self.arguments, "--init", self.folder)

    def test_output_that_cannot_be_written(self):
        self.refuse(1, "--out: .*file", *self.arguments, "--out", self.folder / "file")
        self.refuse(1, "--out: .*file/below", *self.arguments, "--out", self.folder / "file" / "below")
        self.refuse(1, "--out: .*/proc/", *self.arguments, "--out", "/proc/brigade")

    def test_state_that_cannot_be_saved_is_refused_before_training(self):
        self.refuse(1, "--save: .*nowhere", *self.arguments, "--save", self.folder / "nowhere" / "x.safetensors")
        self.refuse(1, "--save: .*file", *self.arguments, "--save", self.folder / "file" / "x.safetensors")
        self.refuse(1, "--save: .*directory", *self.arguments, "--save", self.folder)
        out = self.folder / "made"  # But the directory that --out makes will do.
        self.train("--steps=1", "--out", out, "--save", out / "x.safetensors")
        self.assertTrue((out / "x.safetensors").is_file())

    def test_loss_that_is_no_number_ends_the_run(self):
        run = self.run_program(*TINY, "--steps=50", "--lr=1e30", "--schedule=constant")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, r"^error: ddp: step \d+: the loss is not finite; first on rank 0")


# What every rank must refuse: (exit code, pattern, arguments). Some fail on all ranks, some on rank 0 alone.
ON_RANKS = [
    (2, "--sync", ("--sync=banana",)),
    (2, "--bucket-mb", (*TINY, "--bucket-mb=0")),
    (1, "nowhere", ("--data=/nowhere",)),
    (1, "got 64 samples, 2 ranks, batch_size 33", (*TINY, "--batch-size=33")),
    (1, "--out|rank 0/2 failed|peer|lost", (*TINY, "--steps=1", "--out=/proc/brigade")),
    (1, "--save|rank 0/2 failed|peer|lost", (*TINY, "--steps=1", "--save=/nowhere/x.safetensors")),
]


class OnThreads(ProgramTest):
    def test_two_ranks_end_within_seconds_with_one_line(self):
        for code, pattern, arguments in ON_RANKS:
            run = self.refuse(code, pattern, *arguments, ranks=2)
            self.assertLess(run.seconds, 20, arguments)

    def test_failure_on_one_rank_names_it(self):
        self.refuse(1, r"^\[rank 0/2\] error: --out: ", *TINY, "--out=/proc/brigade", ranks=2)


@requires_mpi
class UnderMpi(ProgramTest):
    # Each rank's exit code goes to a file named by its rank; mpirun ends the last ones itself, without a code.
    WRAPPER = '"$@"; code=$?; echo $code >"$CODES/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exit $code'

    def test_every_rank_ends_within_seconds_and_says_who_it_is(self):
        for number, (code, pattern, arguments) in enumerate(ON_RANKS):
            codes = self.folder / str(number)
            codes.mkdir()
            run = self.refuse_wrapped(code, pattern, codes, *arguments)
            self.assertLess(run.seconds, 20, arguments)
            left = [file.read_text().strip() for file in codes.iterdir()]
            self.assertIn(str(code), left, run)
            self.assertNotIn("0", left, run)
            if code == 1:  # Of usage errors, the same everywhere, only one rank speaks.
                for line in run.complaints:
                    self.assertRegex(line, r"^\[rank [01]/2\] error: ")

    def refuse_wrapped(self, code, pattern, codes, *arguments):
        launch = 'source "$1/scripts/lib.sh"; shift; mpi_run "$@"'
        run = execute(["bash", "-c", launch, "bash", ROOT, 2, "bash", "-c", self.WRAPPER, "bash",
                       settings.bin / "train_resnet18", *last_wins(arguments)], 60, CODES=str(codes))
        with self.subTest(arguments=arguments):
            self.assertEqual(run.code, code, run)
            self.assertGreaterEqual(len(run.complaints), 1, run)
            for line in run.complaints:
                self.assertRegex(line, pattern)
        return run

    def test_what_is_wrong_on_one_rank_alone_is_told_by_all(self):
        launch = 'source "$1/scripts/lib.sh"; shift; mpi_run "$@"'
        spoil = '[[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} == 0 ]] || export BRIGADE_BATCH_SIZE=x; exec "$@"'
        run = execute(["bash", "-c", launch, "bash", ROOT, 2, "bash", "-c", spoil, "bash",
                       settings.bin / "train_resnet18", "--model=mlp", "--synthetic=64", "--steps=1"], 60)
        self.assertEqual(run.code, 2, run)
        self.assertRegex(run.err, r"(?m)^\[rank 1/2\] train_resnet18: .*BRIGADE_BATCH_SIZE; see --help$")
        self.assertRegex(run.err, r"(?m)^\[rank 0/2\] error: rank 1 failed: .*BRIGADE_BATCH_SIZE; see --help$")

    def test_number_of_ranks_is_the_launchers(self):
        self.refuse(1, "ranks 3 and -np 2", *TINY, "--steps=1", ranks=3, mpi=2)

    def test_backend_mpi_without_mpirun_says_how_to_start(self):
        self.refuse(1, "mpirun -np", *TINY, "--steps=1", "--backend=mpi")


if __name__ == "__main__":
    main()
