# SPDX-License-Identifier: MIT
# tests/apps/care_test.py - runs that must not do harm: to checkpoints that are still good, to an earlier run while the
# new one may not even begin, to files of others. Read first: checkpoint_test.py.
import os
import re
import resource
import subprocess

from checkpoint_test import CheckpointTest
from program import TINY, environment, main, settings


class Care(CheckpointTest):
    def damage(self, checkpoint):
        path = checkpoint / "model.safetensors"
        bytes_ = bytearray(path.read_bytes())
        bytes_[-1] ^= 1
        path.write_bytes(bytes_)

    def contents(self, run):
        return {path.relative_to(run.folder): path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}

    def program(self, script, *arguments):
        """Under sh, whose words have the program as "$0"."""
        command = ["sh", "-c", script, settings.bin / "train_resnet18", *TINY, *arguments]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment(), check=False,
                              timeout=120)

    def test_a_damaged_checkpoint_is_no_reason_to_remove_good_ones(self):
        run = self.train("--steps=20", "--save-every=10")
        self.damage(self.folder_of(run, 20))
        again = self.resume(run, *TINY, "--steps=18", "--save-every=4", "--keep-last=1")
        self.assertIn("skipped checkpoint", again.out)
        self.assertEqual(self.steps_saved(run.folder / "checkpoints"), [18, 20])
        self.damage(self.folder_of(run, 18))
        last = self.resume(run, *TINY, "--steps=19", "--save-every=1", "--keep-last=2")
        self.assertIn("the run begins", last.out)

    def test_a_renamed_checkpoint_is_none(self):
        run = self.train("--steps=4", "--save-every=2")
        self.folder_of(run, 4).rename(self.folder_of(run, 500))
        self.resume(run, *TINY, "--steps=5", "--save-every=1", "--keep-last=1")
        self.assertEqual(self.steps_saved(run.folder / "checkpoints"), [5, 500])

    def test_no_file_gets_the_number_of_a_closed_standard_stream(self):
        for closed in ("<&- >&-", "<&- >&- 2>&-"):
            out = self.folder / f"run {len(closed)}"
            run = self.program(f'"$0" "$@" {closed}', "--steps=4", "--save-every=2", f"--out={out}")
            self.assertEqual(run.returncode, 0, run)
            again = self.run_program(*TINY, "--steps=4", "--save-every=2", f"--out={out}", "--resume=auto")
            self.assertEqual(again.code, 0, again)
            self.assertNotIn("skipped", again.out)
            self.assertRegex(again.out, r"(?m)^goes on from .*step_000004, behind step 4")

    def test_overwrite_removes_nothing_for_a_run_that_cannot_begin(self):
        run = self.train("--steps=4", "--save-every=2")
        before = self.contents(run)
        for wrong in (f"--init={run.folder / 'config.json'}", "--batch-size=800", "--accumulate=99",
                      f"--save={self.folder}"):
            failed = self.run_program(*TINY, "--steps=2", "--save-every=1", f"--out={run.folder}", "--overwrite", wrong)
            self.assertEqual(failed.code, 1, failed)
            self.assertEqual(set(self.contents(run)), set(before), wrong)
            self.assertEqual(self.contents(run), before, wrong)

    def test_overwrite_removes_checkpoints_of_a_run_that_saves_none(self):
        run = self.train("--steps=4", "--save-every=2")
        self.assertEqual(self.run_program(*TINY, "--steps=2", f"--out={run.folder}", "--overwrite").code, 0)
        self.assertEqual(self.steps_saved(run.folder / "checkpoints"), [])

    def test_overwrite_removes_only_checkpoints(self):
        (self.folder / "run" / "checkpoints" / "step_000001").mkdir(parents=True)
        thesis = self.folder / "run" / "checkpoints" / "step_000001" / "thesis.txt"
        thesis.write_text("mine")
        run = self.run_program(*TINY, "--steps=2", "--save-every=2", f"--out={self.folder / 'run'}", "--overwrite")
        self.assertEqual(run.code, 0, run)
        self.assertEqual(thesis.read_text(), "mine")

    def test_a_resume_that_is_refused_changes_nothing(self):
        run = self.train("--steps=6", "--save-every=2")
        self.damage(self.folder_of(run, 6))
        before = self.contents(run)
        for flag in ("--optimizer=adamw", "--ema=0.9"):
            self.refuse(1, "--resume: ", *TINY, "--steps=6", f"--out={run.folder}", "--resume=auto", flag)
            self.assertEqual(self.contents(run), before, flag)

    def test_another_training_set_is_told(self):
        run = self.train("--steps=4", "--save-every=2")
        same = self.resume(run, *TINY, "--steps=5")
        self.assertNotIn("training images synthetic", same.out)
        other = self.resume(run, *TINY, "--steps=6", "--seed=1")
        self.assertRegex(other.out, r"not bit-identical to .*: training images synthetic.* -> synthetic")

    def test_a_slash_behind_a_checkpoint_is_no_part_of_its_name(self):
        run = self.train("--steps=4", "--save-every=2")
        for name in (f"{self.folder_of(run, 2)}/", os.path.join(self.folder_of(run, 2), ".")):
            again = self.run_program(*TINY, "--steps=2", f"--out={run.folder}", f"--resume={name}")
            self.assertEqual(again.code, 1, again)
            self.assertIn("holds checkpoints of later steps", again.err)  # It knows whose it is.

    def test_what_is_no_file_is_not_replaced(self):
        os.mkfifo(self.folder / "pipe")
        self.refuse(1, "--save: cannot write .*pipe; it is there, and is no regular file", *TINY, "--steps=1",
                    f"--save={self.folder / 'pipe'}")

    def test_a_limit_on_file_sizes_is_a_full_disk(self):
        run = self.train("--steps=2", "--save-every=2")
        command = [settings.bin / "train_resnet18", *TINY, "--steps=4", f"--out={run.folder}", "--resume=auto",
                   "--save-every=3"]
        limited = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment(),
                                 check=False, timeout=120,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        self.assertEqual(limited.returncode, 1, limited)
        self.assertRegex(limited.stderr, r"warning: checkpoint of step 3 failed: .*File too large; .*training goes on")
        self.assertTrue(re.search(r"error: .*checkpoint of step 4 failed", limited.stderr), limited)


if __name__ == "__main__":
    main()
