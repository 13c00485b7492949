# SPDX-License-Identifier: MIT
# tests/apps/gradients_test.py - flags about how gradients travel: plans that are saved and loaded, comm hooks, where to
# divide, buffers, and what ends or skips a step on all ranks. Read first: program.py.
import json
import os
import re
import unittest

from program import ROOT, TINY, ProgramTest, execute, last_wins, main, requires_mpi, settings

NUMBERS = {"topk": ":0.1", "powersgd": ":2"}  # Of hooks that take one.


class Plans(ProgramTest):
    def test_a_saved_plan_is_taken_as_it_stands(self):
        plan = self.folder / "plan.json"
        saved = self.train("--steps=2", "--plan=size", "--bucket-mb=0.01,0.5", f"--save-plan={plan}", ranks=2)
        loaded = self.train("--steps=2", f"--plan={plan}", "--print-plan", ranks=2)
        self.assertEqual(saved.sha, loaded.sha)
        self.assertEqual(json.loads(plan.read_text()),
                         json.loads((loaded.folder / "bucket_plan.json").read_text()))
        self.assertIn("bucket plan: size caps", loaded.out)

    def test_files_that_are_no_plan_of_this_model_are_refused(self):
        plan = self.folder / "plan.json"
        for text, complaint in (("{", "plan: .*parse"), ("[]", "plan: "), ('{"rule": "x", "buckets": []}', "plan: "),
                                ('{"rule": "x", "buckets": [{"bytes": 4, "dtype": "f32", "parameters": ["nobody"]}]}',
                                 'plan: .*"nobody"')):
            plan.write_text(text)
            self.refuse(1, complaint, *TINY, "--steps=1", f"--plan={plan}")
        self.refuse(2, "--plan: must be one of size, auto, .* or a plan file", *TINY, "--steps=1", "--plan=banana")

    def test_no_cut_and_no_order_changes_a_bit(self):
        ends = {flags: self.train("--steps=4", *flags, ranks=2).sha for flags in (
            (), ("--plan=size", "--bucket-mb=0.01,0.5"), ("--plan=size", "--split-large", "--bucket-mb=0.1"),
            ("--plan=torch",), ("--plan=torch_rebuilt",), ("--bucket-order=ready",), ("--bucket-order=norm_first",),
            ("--min-bucket-kb=100",), ("--net=10gbit,10us",), ("--check-every=1",))}
        self.assertEqual(len(set(ends.values())), 1, ends)


class Hooks(ProgramTest):
    def test_every_hook_learns_and_ranks_agree(self):
        listed = re.search(r"--comm-hook .*\n.*\n((?: +\w+: .*\n)+)", self.run_program("--help").out)[1]
        names = re.findall(r"^ +(\w+): ", listed, re.M)
        self.assertGreaterEqual(len(names), 8, listed)
        for hook in [name + NUMBERS.get(name, "") for name in names]:
            run = self.train("--steps=24", f"--comm-hook={hook}", "--check-every=1", "--lr=0.05", ranks=2)
            self.assertLess(run.losses[-1], run.losses[0], f"{hook}: {run.losses}")

    def test_where_to_divide_changes_rounding_only(self):
        ends = [self.train("--steps=4", f"--divide={where}", ranks=2) for where in ("auto", "before", "after", "split")]
        for run in ends[1:]:
            for a, b in zip(ends[0].losses, run.losses):
                self.assertAlmostEqual(a, b, delta=1e-4)
        self.assertEqual(ends[0].sha, ends[2].sha)

    def test_impossible_hooks_are_refused(self):
        for hook, complaint in (("banana", "unknown comm hook.*none, bf16"), ("none:3", "takes no number"),
                                ("topk:0", "topk"), ("topk:2", "topk"), ("powersgd:1.5", "whole number"),
                                ("powersgd:", "not a number")):
            self.refuse(2, "--comm-hook: .*" + complaint, *TINY, "--steps=1", f"--comm-hook={hook}")
        self.refuse(2, "--divide", *TINY, "--steps=1", "--comm-hook=sign", "--divide=before")


class Buffers(ProgramTest):
    RESNET = ("--model=resnet18", "--synthetic=32", "--batch-size=4", "--steps=2", "--limit-test=4")

    def test_every_policy_trains_and_gives_one_evaluation(self):
        ends = {policy: self.train(*self.RESNET, f"--bn-buffers={policy}", ranks=2)
                for policy in ("broadcast", "average", "sync_bn", "local")}
        # What buffers become does not touch parameters; synchronised statistics do.
        self.assertEqual(ends["broadcast"].sha, ends["average"].sha)
        self.assertEqual(ends["broadcast"].sha, ends["local"].sha)
        self.assertNotEqual(ends["broadcast"].sha, ends["sync_bn"].sha)

    def test_synchronised_batch_norm_makes_the_loss_independent_of_the_split(self):
        flags = (*self.RESNET, "--no-shuffle", "--no-augment", "--bn-buffers=sync_bn")
        one = self.train(*flags, "--batch-size=8").losses
        two = self.train(*flags, ranks=2).losses
        for a, b in zip(one, two):
            self.assertAlmostEqual(a, b, delta=1e-3)


class NonFinite(ProgramTest):
    """A learning rate beyond reason makes the second step's loss infinite or NaN."""

    launch = {"ranks": 2}

    def test_it_ends_the_run_before_an_update_and_is_named(self):
        run = self.run_program(*TINY, "--lr=1e30", "--schedule=constant", "--steps=6", "-q", **self.launch)
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.complaints[0], r"\[rank \d/2\] error: ddp: step [1-5]: the loss is not finite; first on "
                                            r"rank \d, bucket \d+, parameter \".*\"; nothing was updated")

    def test_skipping_goes_on(self):
        run = self.train("--lr=1e30", "--schedule=constant", "--steps=6", "--non-finite=skip", **self.launch)
        self.assertEqual(len(run.losses), 6)
        self.assertIn(None, run.losses, "JSON has no NaN")


@requires_mpi
class NonFiniteUnderMpi(NonFinite):
    launch = {"mpi": 2}


@requires_mpi
class DifferentFlags(ProgramTest):
    """Ranks that were not started alike: all end at once and name the flag."""

    def launch(self, program, odd_program):
        command = ["bash", "-c", 'source "$1/scripts/lib.sh"; shift; mpi_environment; "$@"', "bash", ROOT,
                   os.environ.get("MPIRUN", "mpirun"), "--oversubscribe", "--bind-to", "none", "--quiet",
                   "-np", "1", *program, ":", "-np", "1", *odd_program]
        run = execute(command, 60)
        self.assertNotEqual(run.code, 0, run)
        self.assertLess(run.seconds, 15, run)
        return run.complaints[0]

    PROGRAM = (*TINY, "--steps=2", "--timeout=20")

    def test_the_flag_is_named(self):
        for odd, what in (("--lr=0.5", r"lr 0\.01 as on rank 0, got lr 0\.5"), ("--net=1gbit,50us", "net "),
                          ("--non-finite=skip", "non_finite"), ("--deterministic", "deterministic"),
                          ("--batch-size=4", "batch_size"), ("--sync=flat", "sync")):
            program = [str(settings.bin / "train_resnet18"), *self.PROGRAM]
            complaint = self.launch(program, last_wins([*program, odd]))
            self.assertRegex(complaint, "ranks were started with different flags: rank 1: expected " + what)

    def test_so_is_a_variable_that_only_one_rank_has(self):
        program = [str(settings.bin / "train_resnet18"), *self.PROGRAM]
        complaint = self.launch(program, ["env", "BRIGADE_MOMENTUM=0.5", *program])
        self.assertRegex(complaint, "different flags: rank 1: expected momentum 0.9 as on rank 0, got momentum 0.5")


if __name__ == "__main__":
    main()
