# SPDX-License-Identifier: MIT
# tests/apps/checkpoint_test.py - runs that are saved, stopped, killed and resumed. Read first: program.py. The long
# campaigns are scripts/reliability/.
import json
import os
import resource
import shutil
import signal
import subprocess
import time

from program import TINY, ProgramTest, environment, last_wins, main, requires_mpi, settings

# Everything that has state: momentum, average, augmentation, an epoch that ends between checkpoints, batch norm.
STATEFUL = ("--synthetic=96", "--epochs=3", "--accumulate=2", "--ema=0.9", "--clip-norm=1")


class CheckpointTest(ProgramTest):
    def folder_of(self, run, step):
        return run.folder / "checkpoints" / f"step_{step:06}"

    def steps_saved(self, folder):
        return sorted(int(path.name[5:]) for path in folder.glob("step_??????"))

    def manifest(self, folder):
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))

    def lines(self, run):
        """What does not depend on time: of each step, and of each evaluation."""
        return ([(r["step"], r["epoch"], r["loss"], r["lr"]) for r in run.steps], run.evaluations)

    def resume(self, run, *arguments, **how):
        """Goes on in the folder of `run`."""
        again = self.run_program(*arguments, f"--out={run.folder}", "--resume=auto", **how)
        self.assertEqual(again.code, 0, again)
        again.folder = run.folder
        return again

    def drop_after(self, run, step):
        """As if the run had been killed before the next checkpoint."""
        for saved in self.steps_saved(run.folder / "checkpoints"):
            if saved > step:
                shutil.rmtree(self.folder_of(run, saved))


class Resume(CheckpointTest):
    """Theorem 4 for the program: a resumed run equals the one that was not stopped, bit by bit."""

    def check(self, *arguments, stops=(2, 4), **how):
        arguments = (*TINY, *STATEFUL, "-q", *arguments)
        whole = self.train(*arguments, **how)
        saving = self.train(*arguments, "--save-every=2", "--keep-last=9", **how)
        self.assertEqual(saving.sha, whole.sha, "saving changes nothing")
        self.assertEqual(self.lines(saving), self.lines(whole))
        for step in reversed(stops):
            self.drop_after(saving, step)
            again = self.resume(saving, *last_wins(arguments), "--save-every=2", "--keep-last=9", **how)
            self.assertRegex(again.out, rf"(?m)^goes on from .*step_{step:06}, behind step {step} in epoch ")
            self.assertNotIn("not bit-identical", again.out)
            self.assertEqual(again.sha, whole.sha, again)
            self.assertEqual(self.lines(again), self.lines(whole), "no line is missing or told twice")
        return saving

    def test_one_rank(self):
        self.check()

    def test_two_thread_ranks(self):
        self.check(ranks=2)

    def test_three_ranks_that_add_up_in_rank_order(self):
        self.check("--deterministic", "--batch-size=4", ranks=3)

    def test_optimizers(self):
        self.check("--optimizer=adamw", "--lr=0.001", stops=(2,), ranks=2)
        self.check("--optimizer=lars", stops=(2,), ranks=2)

    def test_what_a_comm_hook_keeps_back(self):
        for hook in ("topk:0.1", "sign", "powersgd", "sign_dropout"):
            with self.subTest(hook=hook):
                self.check(f"--comm-hook={hook}", "--plan=size", stops=(2,), ranks=2)

    def test_batch_norm_of_each_rank(self):
        self.check("--model=resnet18", "--synthetic=8", "--batch-size=2", "--epochs=4", "--limit-test=2",
                   "--bn-buffers=average", stops=(2,), ranks=2)

    def test_a_single_checkpoint_is_taken_by_name(self):
        saving = self.train(*STATEFUL, "--save-every=2", "--keep-last=9")
        again = self.train(*STATEFUL, f"--resume={self.folder_of(saving, 4)}")
        self.assertEqual(again.sha, saving.sha)
        self.assertEqual(self.lines(again)[0], self.lines(saving)[0][4:], "a folder of its own has only new lines")

    def test_a_run_that_is_over_says_so(self):
        saving = self.train("--steps=3", "--save-every=2")
        again = self.resume(saving, *TINY, "--steps=3")
        self.assertRegex(again.out, "the run is over: the checkpoint is of step 3 of 3")

    def test_manifest_says_what_was_run(self):
        run = self.train(*STATEFUL, "--save-every=2", "--keep-last=2", ranks=2)
        self.assertIn(18, self.steps_saved(run.folder / "checkpoints")[-1:] + [18])
        newest = (run.folder / "checkpoints" / "latest").read_text().strip()
        manifest = self.manifest(run.folder / "checkpoints" / newest)
        self.assertEqual(manifest["world_size"], 2)
        self.assertEqual(manifest["run"]["threads"], 1)
        self.assertEqual(manifest["run"]["flags"]["ema"], 0.9)
        self.assertGreater(len(manifest["bucket_plan"]["buckets"]), 0)
        self.assertEqual(sorted(file["name"] for file in manifest["files"]),
                         ["ema.safetensors", "model.safetensors", "optimizer.safetensors", "rank_0000.safetensors",
                          "rank_0001.safetensors"])
        # The newest two, and the best.
        self.assertLessEqual(len(self.steps_saved(run.folder / "checkpoints")), 3)

    def test_the_model_of_a_checkpoint_is_an_init_file(self):
        run = self.train("--steps=2", "--save-every=1", "--save", self.folder / "end.safetensors")
        model = self.folder_of(run, 2) / "model.safetensors"
        again = self.run_program(*TINY, "--steps=1", "--lr=1e-30", "--weight-decay=0", f"--init={model}")
        self.assertEqual(again.code, 0, again)
        self.assertEqual(again.sha, run.sha)


@requires_mpi
class ResumeUnderMpi(Resume):
    def check(self, *arguments, stops=(2, 4), **how):
        super().check(*arguments, stops=stops, mpi=2)

    test_one_rank = test_three_ranks_that_add_up_in_rank_order = test_optimizers = None
    test_what_a_comm_hook_keeps_back = test_batch_norm_of_each_rank = None
    test_a_single_checkpoint_is_taken_by_name = test_a_run_that_is_over_says_so = None
    test_manifest_says_what_was_run = test_the_model_of_a_checkpoint_is_an_init_file = None


if __name__ == "__main__":
    main()
