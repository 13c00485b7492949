# SPDX-License-Identifier: MIT
# tests/apps/outputs_test.py - what a run says and leaves behind: help, banner, lines, and the files of --out. Read
# first: program.py.
import json
import math
import re
import unittest

from program import EVALUATION_KEYS, IN_ORDER, ROOT, STEP_KEYS, TINY, ProgramTest, main

FLAGS = """--data --synthetic --epochs --steps --batch-size --lr --momentum --weight-decay --label-smoothing --schedule
    --optimizer --precision --model --stem --sync --bucket-mb --first-bucket-mb --accumulate --checkpoint-activations
    --backend --ranks --device --no-norm-decay --nesterov --seed --no-augment --no-shuffle --limit-train --limit-test
    --eval-every --init --save --out --deterministic --plan --threads --clip-norm --ema --timeout --quiet
    --eval-flip --target-accuracy --overwrite --trace-steps --verbose""".split()
NOT_OF_A_RUN = ["--config", "--print-config", "--model-summary", "--completion"]


class Words(ProgramTest):
    def test_help_names_every_flag(self):
        run = self.run_program("--help")
        self.assertEqual((run.code, run.err), (0, ""))
        for flag in FLAGS + NOT_OF_A_RUN:
            self.assertRegex(run.out, rf"(?m)(^|[\s,]){flag}\b", flag)

    def test_help_and_readme_say_what_mpirun_wants(self):
        for text in (self.run_program("--help").out, (ROOT / "README.md").read_text(encoding="utf-8")):
            self.assertIn("--oversubscribe", text)
            self.assertIn("scripts/train.sh", text)

    def test_every_flag_of_the_readme_exists(self):
        help_text = self.run_program("--help").out
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for line in re.findall(r"(?m)^.*bin/train_resnet18 .*$", readme):
            for flag in re.findall(r"train_resnet18.*?(--[a-z-]+)", line):
                self.assertIn(flag, help_text, line)

    def test_banner_names_batches_rate_ranks_and_threads(self):
        out = self.train("--steps=2", "--threads=1", "--accumulate=2", "--lr=0.025", "--sync=flat", ranks=2).out
        self.assertRegex(out, r"mlp \(\d+ parameters, f32\), 2 ranks x 1 thread \(threads\), sync flat, 1 buckets?\n")
        self.assertRegex(out, r"batch 8 a rank, 32 in all; 2 steps; sgd with cosine learning rate, peak 0\.025\n")
        self.assertRegex(out, r"; plan: .*; exposed time: measured from the first step on\n")
        one = self.train("--steps=1", "--threads=2").out
        self.assertRegex(one, r"1 rank x 2 threads")
        self.assertRegex(one, r"; plan: .*; one rank: nothing travels\n")

    def test_banner_says_what_is_known_of_exposure(self):
        # Of 3.28 MB, a ring of two ranks sends all once: 26.3 ms at 1 Gbit/s.
        out = self.train("--steps=1", "--net=1gbit", ranks=2).out
        self.assertRegex(out, r"exposed time: measured from the first step on, predicted with each change of the plan "
                              r"\(of 26\.3 ms a step on the modelled network\)\n")

    def test_a_run_without_files_says_how_to_get_them(self):
        out = self.run_program(*TINY, "--steps=1").out
        self.assertRegex(out, r"(?m)^no files: --out DIR keeps figures, trace and a report with advice$")

    def test_bf16_without_instructions_for_it_trains_in_f32_and_says_so(self):
        out = self.train("--steps=2", "--precision=bf16", DNNL_MAX_CPU_ISA="AVX2").out
        self.assertRegex(out, r"(?m)^--precision bf16: this processor has no instructions for it; training in f32$")
        self.assertRegex(out, r"mlp \(\d+ parameters, f32\)")

    def test_lines_for_people(self):
        run = self.train("--epochs=1")
        self.assertEqual(len(re.findall(r"(?m)^step +\d+/8 .* loss \d+\.\d+ .* lr 0\.\d+ .* images/s", run.out)), 8)
        self.assertNotIn("\r", run.out, "plain lines where there is no terminal")
        self.assertNotIn("\x1b", run.out)
        self.assertIn(f"output in {run.folder}", run.out)
        quiet = self.train("--epochs=1", "--quiet")
        self.assertNotRegex(quiet.out, r"(?m)^step ")
        self.assertEqual(quiet.sha, run.sha)

    def test_without_data_the_run_is_synthetic_and_says_so(self):
        run = self.run_program("--model=mlp", "--limit-train=16", "--limit-test=4", "--batch-size=8", "--steps=1",
                               XDG_CACHE_HOME=str(self.folder), HOME=str(self.folder))
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out, r"no CIFAR-10 found \(looked at .*\): using synthetic")

    def test_plan_is_printed_on_request(self):
        out = self.train("--steps=1", "--print-plan").out
        for name in ("layers.0.weight", "layers.4.bias"):
            self.assertIn(name, out)
        self.assertRegex(out, r"gradients \d+\.\d+ MiB, in buckets of \d+\.\d+ MiB: together 1\.0\d+ times")


class Files(ProgramTest):
    def test_steps_and_evaluations_have_the_documented_keys(self):
        run = self.train("--epochs=3", ranks=2)
        records = [r for r in run.records if r.get("event") != "plan"]
        self.assertEqual(len(run.steps) + len(run.evaluations), len(records))
        for record in run.steps:
            self.assertEqual(list(record), STEP_KEYS)
            self.assertTrue(all(math.isfinite(value) for value in record.values()), record)
            self.assertGreater(record["step_ms"], 0)
            self.assertGreaterEqual(record["comm_ms"], record["hidden_ms"])
            self.assertAlmostEqual(record["images_per_s"] * record["step_ms"] / 1000, 16, delta=0.5)
        for record in run.evaluations:
            self.assertEqual(list(record), EVALUATION_KEYS)
            self.assertAlmostEqual(10 * record["test_accuracy"], round(10 * record["test_accuracy"]), places=6)
        self.assertEqual([r["step"] for r in run.steps], list(range(1, 13)))
        self.assertEqual([r["epoch"] for r in run.steps], 4 * [0] + 4 * [1] + 4 * [2])
        self.assertEqual([r["epoch"] for r in run.evaluations], [0, 1, 2])
        # In order: the evaluation of an epoch follows its steps.
        self.assertEqual([list(r) == EVALUATION_KEYS for r in records], 3 * (4 * [False] + [True]))

    def test_losses_have_nine_significant_digits(self):
        run = self.train("--steps=8")
        text = (run.folder / "metrics.jsonl").read_text(encoding="utf-8")
        digits = [len(d.replace(".", "").lstrip("0")) for d in re.findall(r'"loss": ([\d.]+),', text)]
        self.assertEqual(len(digits), 8)
        self.assertLessEqual(max(digits), 9)
        self.assertGreaterEqual(sorted(digits)[4], 8, "only trailing zeros may be missing")

    def test_config_is_json_and_holds_the_flags(self):
        config = self.train("--steps=3", "--nesterov", "--no-norm-decay", "--seed=7", "--sync=naive").config
        for key, value in {"model": "mlp", "synthetic": 64, "steps": 3, "batch_size": 8, "nesterov": True, "lr": 0.01,
                           "norm_decay": False, "seed": 7, "sync": "naive", "precision": "f32"}.items():
            self.assertEqual(config[key], value, key)
        for flag in FLAGS:
            if flag not in ("--no-norm-decay", "--no-augment", "--no-shuffle", "--out", "--quiet", "--overwrite",
                            "--trace-steps", "--verbose"):
                self.assertIn(flag[2:].replace("-", "_"), config)

    def test_a_path_that_is_no_utf8_is_a_path(self):
        path = self.folder / "\udcff"  # Python's word for the byte 0xff.
        run = self.train("--steps=1", f"--save-plan={path}")
        self.assertTrue(path.exists())
        self.assertIn("\ufffd", run.config["run"]["command"])

    def test_bucket_plan_holds_every_parameter_once(self):
        parameters = {f"layers.{layer}.{part}" for layer in (0, 2, 4) for part in ("weight", "bias")}
        for arguments in (("--sync=bucketed", "--bucket-mb=0.1"), ("--sync=flat",), ("--sync=naive",),
                          ("--sync=per_parameter",), ()):
            plan = json.loads((self.train("--steps=1", *arguments).folder / "bucket_plan.json").read_text())
            names = [name for bucket in plan["buckets"] for name in bucket["parameters"]]
            self.assertEqual(sorted(names), sorted(parameters), arguments)
            self.assertEqual(sum(bucket["bytes"] for bucket in plan["buckets"]) // 4,
                             3072 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10, arguments)

    def test_files_of_an_older_run_are_replaced_only_on_request(self):
        same = self.folder / "same"
        self.train("--epochs=1", "--out", same)
        self.refuse(1, "--out: .*same holds a run already; choose another directory, or give --overwrite", *TINY,
                    "--steps=2", "--out", same)
        run = self.train("--steps=2", "--out", same, "--overwrite")
        run.folder = same
        self.assertEqual(len(run.steps), 2)


class Counting(ProgramTest):
    def test_an_epoch_is_the_whole_batches_of_the_set(self):
        self.assertEqual(len(self.train("--epochs=2").steps), 16)
        self.assertEqual(len(self.train("--epochs=2", "--limit-train=63").steps), 14)
        self.assertEqual(len(self.train("--epochs=2", ranks=4).steps), 4)

    def test_accumulate_makes_fewer_and_larger_steps(self):
        run = self.train("--epochs=2", "--accumulate=4")
        self.assertEqual(len(run.steps), 4)
        self.assertEqual([r["epoch"] for r in run.steps], [0, 0, 1, 1])
        # The same gradient as one large batch.
        whole = self.train("--epochs=2", "--batch-size=32", *IN_ORDER)
        parts = self.train("--epochs=2", "--accumulate=4", *IN_ORDER)
        for one, other in zip(whole.losses, parts.losses, strict=True):
            self.assertLess(abs(one - other), 1e-5 * one)

    def test_steps_go_on_into_the_next_epochs_and_end_the_schedule(self):
        run = self.train("--steps=20", "--schedule=cosine")
        self.assertEqual([r["epoch"] for r in run.steps], 8 * [0] + 8 * [1] + 4 * [2])
        self.assertLess(run.steps[-1]["lr"], 0.05 * max(r["lr"] for r in run.steps))
        self.assertEqual([r["epoch"] for r in run.evaluations], [0, 1, 2])

    def test_evaluations_come_as_often_as_asked(self):
        self.assertEqual([r["epoch"] for r in self.train("--epochs=5", "--eval-every=2").evaluations], [1, 3, 4])
        self.assertEqual([r["epoch"] for r in self.train("--epochs=3", "--eval-every=0").evaluations], [2])

    def test_shuffling_gives_every_epoch_another_order(self):
        at_rest = ("--epochs=2", "--lr=1e-30", "--no-augment", "--weight-decay=0")
        shuffled, ordered = self.train(*at_rest).losses, self.train(*at_rest, "--no-shuffle").losses
        self.assertNotEqual(shuffled[:8], shuffled[8:])
        self.assertEqual(ordered[:8], ordered[8:])
        # The epochs hold the same images: only the order differs.
        self.assertAlmostEqual(sum(shuffled[:8]), sum(shuffled[8:]), delta=1e-4)


if __name__ == "__main__":
    main()
