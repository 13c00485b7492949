# SPDX-License-Identifier: MIT
# tests/apps/checkpoint_test.py - runs that are saved, stopped, killed and resumed. Read first: program.py. The long
# campaigns are scripts/reliability/.
import json
import resource
import shutil
import signal
import subprocess
import time

from program import TINY, ProgramTest, environment, last_wins, main, requires_mpi, settings

# What has state: momentum, average, augmentation, an epoch that ends between checkpoints. Batch norm and dropout are in
# tests/dist/checkpoint_test.cpp.
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

    def test_a_single_checkpoint_is_taken_by_name(self):
        saving = self.train(*STATEFUL, "--save-every=2", "--keep-last=9")
        again = self.train(*STATEFUL, f"--resume={self.folder_of(saving, 4)}")
        self.assertEqual(again.sha, saving.sha)
        self.assertEqual(self.lines(again)[0], self.lines(saving)[0][4:], "a folder of its own has only new lines")

    def test_a_run_that_is_over_says_so_and_ends_as_it_did(self):
        """It may have been killed behind its last checkpoint, before it wrote what --save asks for."""
        saving = self.train("--steps=3", "--save-every=2")
        weights = self.folder / "weights.safetensors"
        again = self.resume(saving, *TINY, "--steps=3", f"--save={weights}")
        self.assertRegex(again.out, "the run is over: the checkpoint is of step 3 of 3")
        self.assertEqual(again.sha, saving.sha)
        self.assertTrue(weights.is_file())

    def test_manifest_says_what_was_run(self):
        run = self.train(*STATEFUL, "--save-every=2", "--keep-last=2", ranks=2)
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
    test_what_a_comm_hook_keeps_back = None
    test_a_single_checkpoint_is_taken_by_name = test_a_run_that_is_over_says_so = None
    test_manifest_says_what_was_run = test_the_model_of_a_checkpoint_is_an_init_file = None


class OtherWorlds(CheckpointTest):
    """With other ranks or batches a run goes on, sees what the epoch has left once, and says what is different."""

    ARGUMENTS = ("--synthetic=96", "--epochs=2", "-q")  # On two ranks 6 steps of 16 an epoch.

    def start(self, step):
        run = self.train(*self.ARGUMENTS, "--save-every=1", "--keep-last=99", ranks=2)
        self.drop_after(run, step)
        return run

    def test_the_same_global_batch_goes_on_as_it_was(self):
        run = self.start(4)
        again = self.resume(run, *last_wins([*TINY, *self.ARGUMENTS, "--batch-size=16"]), ranks=1)
        self.assertRegex(again.out, r"(?m)^not bit-identical to the run that would have gone on: ranks 2 -> 1, "
                                    r"--batch-size 8 -> 16$")
        self.assertEqual([(r["step"], r["epoch"]) for r in again.steps],
                         [(step, (step - 1) // 6) for step in range(1, 13)])
        self.assertEqual([r["step"] for r in again.evaluations], [6, 12])

    def test_what_is_left_of_an_epoch_is_cut_anew(self):
        run = self.start(4)
        # 96 - 4 * 16 = 32 images are left: two steps of 16 on three ranks, which take up to 24. Then 4 steps of 24.
        again = self.resume(run, *TINY, *self.ARGUMENTS, ranks=3)
        self.assertIn("the rest of epoch 1, 32 samples, in 2 steps of about 16 instead of 16", again.out)
        self.assertIn("ranks 2 -> 3", again.out)
        self.assertEqual([(r["step"], r["epoch"]) for r in again.steps],
                         [(step, 0) for step in range(1, 7)] + [(step, 1) for step in range(7, 11)])
        self.assertEqual([r["step"] for r in again.evaluations], [6, 10])
        # And on from there, in the middle of an epoch of three ranks.
        self.drop_after(run, 6)
        last = self.resume(run, *TINY, *self.ARGUMENTS, ranks=1)
        self.assertEqual([(r["step"], r["epoch"]) for r in last.steps],
                         [(step, 0) for step in range(1, 7)] + [(step, 1) for step in range(7, 19)])

    def test_another_set_of_images_is_refused(self):
        run = self.start(2)
        self.refuse(1, "the checkpoint is of a training set of 96 samples; got 64", *TINY, f"--out={run.folder}",
                    "--resume=auto")


class Stopped(CheckpointTest):
    """SIGTERM and SIGINT: saved behind a whole step, exit code 75, and nobody can tell afterwards. [A27], whose fifty
    trials with one rank of a job are the campaign `term` of scripts/chaos.sh."""

    ENDLESS = ("--steps=1000000", "--schedule=constant", "--ema=0.9", "-q")

    def start(self, *arguments, before=()):
        self.out = self.folder / "run"
        command = [*before, settings.bin / "train_resnet18",
                   *last_wins([*TINY, *self.ENDLESS, f"--out={self.out}", *arguments])]
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment(),
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not (self.out / "trace.json.gz").exists():
            self.assertIsNone(process.poll(), "the run ended by itself")
            self.assertLess(time.monotonic(), deadline, "nothing after a minute")
            time.sleep(0.05)
        return process

    def check(self, number, *arguments, ranks=1, before=()):
        process = self.start("--save-seconds=1000", f"--ranks={ranks}", *arguments, before=before)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (75, ""), out)
        name = signal.Signals(number).name
        self.assertRegex(out, rf"(?m)^{name}: stopped after step \d+, saved; --resume auto goes on from here")
        done = self.steps_saved(self.out / "checkpoints")[-1]
        arguments = (*self.ENDLESS, f"--ranks={ranks}", *arguments, f"--steps={done + 2}")
        again = self.run_program(*TINY, *arguments, f"--out={self.out}", "--resume=auto")
        self.assertEqual(again.code, 0, again)
        again.folder = self.out
        whole = self.train(*arguments)
        self.assertEqual(again.sha, whole.sha)
        self.assertEqual([(r["step"], r["loss"]) for r in again.steps], [(r["step"], r["loss"]) for r in whole.steps])
        self.assertEqual(again.evaluations, whole.evaluations, "an epoch that ended with the signal is evaluated later")

    def test_sigterm_to_thread_ranks(self):
        self.check(signal.SIGTERM, "--eval-every=3", ranks=2)

    def test_sigint_at_the_end_of_an_epoch(self):
        # An epoch is a step: the signal always comes before an evaluation.
        self.check(signal.SIGINT, "--synthetic=8")

    def test_a_run_without_a_place_for_checkpoints_ends_as_before(self):
        process = self.start()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)
        self.assertFalse((self.out / "checkpoints").exists())


@requires_mpi
class StoppedUnderMpi(Stopped):
    test_sigterm_to_thread_ranks = test_sigint_at_the_end_of_an_epoch = None
    test_a_run_without_a_place_for_checkpoints_ends_as_before = None

    def test_sigterm_to_the_launcher(self):
        # Resumed on threads: two ranks add up to the same bits however they talk.
        process = self.start("--save-seconds=1000", before=(settings.bin / "launch", "-n", "2", "--"))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, out + err)
        self.assertRegex(out, r"(?m)^SIGTERM: stopped after step \d+, saved; --resume auto goes on from here")
        done = self.steps_saved(self.out / "checkpoints")[-1]
        arguments = (*TINY, *self.ENDLESS, f"--steps={done + 2}")
        again = self.run_program(*last_wins(arguments), f"--out={self.out}", "--resume=auto", ranks=2)
        self.assertEqual(again.code, 0, again)
        self.assertEqual(again.sha, self.train(*arguments, ranks=2).sha)


class Failures(CheckpointTest):
    """Checkpoints that cannot be written or read (A18, A19)."""

    def limited(self, bytes_allowed, *arguments, **how):
        """Files larger than that fail, as on a full disk; Python's child ignores the signal that comes with it."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, resource.RLIM_INFINITY))
        command = [settings.bin / "train_resnet18", *last_wins([*TINY, "-q", *arguments])]
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment(), check=False,
                             preexec_fn=limit, timeout=120, **how)
        return run

    def test_a_save_that_fails_leaves_the_old_one_and_fails_at_the_end(self):
        run = self.train("--steps=2", "--save-every=2")
        out = f"--out={run.folder}"
        failed = self.limited(1 << 20, out, "--resume=auto", "--steps=5", "--save-every=2")
        self.assertEqual(failed.returncode, 1, failed.stderr)
        warning, error = failed.stderr.splitlines()
        reason = r"checkpoint of step {}.* failed: save_safetensors: cannot write .*/step_00000{}\.partial/" \
                 r"model\.safetensors: File too large; \d{{7}} bytes needed"
        self.assertRegex(warning, "^train_resnet18: warning: " + reason.format(4, 4) + "; training goes on$")
        self.assertRegex(error, "^error: " + reason.format(5, 5) + "$")
        self.assertEqual(sorted(p.name for p in (run.folder / "checkpoints").iterdir()),
                         ["best", "latest", "step_000002"])
        again = self.resume(run, *TINY, "--steps=5")
        self.assertIn("behind step 2", again.out)

    def test_on_save_failure_stop_ends_the_run(self):
        failed = self.limited(1 << 20, f"--out={self.folder / 'x'}", "--steps=1000000", "--save-every=2",
                              "--on-save-failure=stop")
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertRegex(failed.stderr, r"^error: checkpoint of step 2 failed: .*File too large")

    def test_damaged_checkpoints_are_skipped_by_name(self):
        run = self.train("--steps=3", "--save-every=1", ranks=2)
        (self.folder_of(run, 3) / "COMPLETE").unlink()
        with open(self.folder_of(run, 2) / "rank_0001.safetensors", "r+b") as file:
            file.seek(12)
            file.write(b"?")
        (run.folder / "checkpoints" / "step_000009.partial").mkdir()
        again = self.resume(run, *TINY, "--steps=4", "--save-every=1", ranks=2)
        self.assertRegex(again.out, r"(?m)^removed .*step_000009\.partial, which was not finished$")
        self.assertRegex(again.out, r"(?m)^skipped checkpoint .*step_000003: no COMPLETE in it: it was not finished$")
        self.assertRegex(again.out, r"(?m)^skipped checkpoint .*step_000002: rank_0001\.safetensors does not have the "
                                    r"checksum of the manifest$")
        self.assertIn("behind step 1", again.out)
        self.assertEqual(self.steps_saved(run.folder / "checkpoints"), [2, 3, 4], "broken ones were replaced")

    def test_a_run_that_begins_does_not_touch_another_ones_checkpoints(self):
        run = self.train("--steps=2", "--save-every=1")
        elsewhere = f"--checkpoint-dir={run.folder / 'checkpoints'}"
        self.refuse(1, "holds checkpoints of an earlier run; --resume auto", *TINY, elsewhere)
        self.refuse(1, "holds checkpoints of later steps, up to 2", *TINY, elsewhere,
                    f"--resume={self.folder_of(run, 1)}")
        self.refuse(1, "--resume: no complete checkpoint in", *TINY, f"--resume={self.folder}")
        self.refuse(1, "--resume: there is no folder .*/nowhere$", *TINY, f"--resume={self.folder}/nowhere")
        again = self.run_program(*TINY, "--steps=1", "--save-every=1", f"--out={run.folder}", "--overwrite")
        self.assertEqual(again.code, 0, again)
        self.assertEqual(self.steps_saved(run.folder / "checkpoints"), [1])

    def test_a_run_that_saved_nothing_cannot_be_resumed(self):
        out = f"--out={self.folder / 'run'}"
        self.assertEqual(self.run_program(*TINY, "--steps=1", out).code, 0)
        self.refuse(1, "--resume auto: the run in .*run saved no checkpoints .*--save-every", *TINY, out,
                    "--resume=auto")
        again = self.run_program(*TINY, "--steps=1", out, "--resume=auto", "--overwrite")
        self.assertEqual(again.code, 0, again)

    def test_the_folder_of_a_run_is_as_good_as_that_of_its_checkpoints(self):
        run = self.train("--steps=2", "--save-every=1")
        again = self.run_program(*TINY, "--steps=3", f"--resume={run.folder}", f"--out={self.folder / 'again'}")
        self.assertEqual(again.code, 0, again)
        self.assertIn("behind step 2", again.out)

    def test_flags_by_which_other_tensors_are_kept_are_refused_by_name(self):
        run = self.train("--steps=2", "--save-every=1", "--optimizer=sgd")
        for flag, before, now in (("optimizer", '"sgd"', '"adamw"'), ("model", '"mlp"', '"resnet18"'),
                                  ("momentum", "0.9", "0.0"), ("ema", "0.0", "0.5")):
            value = now.strip('"')
            self.refuse(1, rf"step_000002 is of --{flag} {before}, and this run of {now}: what they keep differs; "
                           r"--init .*step_000002/model\.safetensors begins a new run", *TINY, "--steps=9",
                        f"--out={run.folder}", "--resume=auto", f"--{flag}={value}")

    def test_flags_that_do_not_go_together(self):
        self.refuse(2, "need --out or --checkpoint-dir", *TINY, "--save-every=5")
        self.refuse(2, "need --out or --checkpoint-dir", *TINY, "--resume=auto")
        # As launch --max-restarts says it to whatever it starts again.
        self.assertEqual(self.run_program(*TINY, "--steps=1", BRIGADE_RESUME="auto").code, 0)
        self.refuse(2, "must be another directory", *TINY, f"--out={self.folder}", f"--checkpoint-dir={self.folder}/")

    def test_auto_begins_where_there_is_nothing_yet(self):
        out = self.folder / "run"
        first = self.run_program(*TINY, "--steps=2", "--save-every=1", f"--out={out}", "--resume=auto")
        self.assertEqual(first.code, 0, first)
        self.assertIn("the run begins", first.out)
        # Killed before its first checkpoint: told again from the start.
        shutil.rmtree(out / "checkpoints")
        (out / "checkpoints").mkdir()
        second = self.run_program(*TINY, "--steps=2", "--save-every=1", f"--out={out}", "--resume=auto")
        self.assertEqual(second.code, 0, second)
        second.folder = out
        self.assertEqual([r["step"] for r in second.steps], [1, 2])
        self.assertEqual(second.sha, first.sha)


if __name__ == "__main__":
    main()
