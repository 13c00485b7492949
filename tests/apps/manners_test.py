# SPDX-License-Identifier: MIT
# tests/apps/manners_test.py - how a run ends that somebody stops, and that lines of several ranks stay whole. Read
# first: program.py.
import collections
import fcntl
import gzip
import json
import os
import re
import signal
import subprocess
import time

from program import ROOT, TINY, ProgramTest, environment, last_wins, main, requires_mpi, settings


class Stopped(ProgramTest):
    """Runs that would go on for hours, until a signal comes."""

    def start(self, *arguments, before=()):
        self.out = self.folder / "run"
        command = [*before, settings.bin / "train_resnet18",
                   *last_wins([*TINY, "--steps=1000000", "-q", f"--out={self.out}", *arguments])]
        # Shells start what runs in the background with SIGINT ignored, and that is inherited.
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment(PIDS=str(self.folder)),
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def wait_until(self, holds, process):
        deadline = time.monotonic() + 60
        while not holds():
            self.assertIsNone(process.poll(), "the run ended by itself")
            self.assertLess(time.monotonic(), deadline, "nothing after a minute")
            time.sleep(0.05)

    def finish(self, process, code):
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, code, out + err)
        return out, err

    def check_files(self, name):
        lines = (self.out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        steps = [record["step"] for record in records if "event" not in record]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertGreaterEqual(len(steps), 15)
        self.assertEqual([r for r in records if r.get("event") == "interrupted"],
                         [{"event": "interrupted", "step": len(steps), "signal": name}])
        with gzip.open(self.out / "trace.json.gz", "rt", encoding="utf-8") as file:
            json.load(file)
        for file in ("config.json", "bucket_plan.json", "profile.json"):
            json.loads((self.out / file).read_text(encoding="utf-8"))
        self.assertIn("</html>", (self.out / "report.html").read_text(encoding="utf-8"))
        self.assertEqual(list(self.out.glob("*.part")), [])
        return len(steps)

    def stop(self, number, name, code, *arguments):
        saved = self.folder / "state.safetensors"
        process = self.start(*arguments, "--save", saved)
        self.wait_until((self.out / "trace.json.gz").exists, process)
        process.send_signal(number)
        out, err = self.finish(process, code)
        self.assertEqual(err, "")
        steps = self.check_files(name)
        self.assertRegex(out, rf"(?m)^{name}: stopped after step {steps}; nothing goes to --save")
        self.assertRegex(out, r"(?m)^done in ")
        self.assertFalse(saved.exists())

    def test_sigint_ends_with_130(self):
        self.stop(signal.SIGINT, "SIGINT", 130)

    def test_sigterm_ends_thread_ranks_with_143(self):
        self.stop(signal.SIGTERM, "SIGTERM", 143, "--ranks=3", "--batch-size=4")

    def test_a_signal_again_does_not_wait_for_the_step(self):
        # Steps of many seconds.
        process = self.start("--model=resnet18", "--synthetic=2048", "--batch-size=2048")
        self.assertRegex(process.stdout.readline(), "synthetic")
        process.send_signal(signal.SIGINT)
        time.sleep(1.2)
        self.assertIsNone(process.poll())
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.finish(process, 130)  # The first one's.
        self.assertLess(time.monotonic() - begin, 2)

    def test_a_signal_that_is_ignored_stays_so(self):
        process = self.start(before=("bash", "-c", "trap '' INT; exec \"$@\"", "bash"))
        self.wait_until((self.out / "trace.json.gz").exists, process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.finish(process, 143)


@requires_mpi
class StoppedUnderMpi(Stopped):
    LAUNCH = 'source "$1/scripts/lib.sh"; shift; mpi_environment; exec "$@"'
    RANK = 'echo $$ >"$PIDS/pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"'

    test_sigint_ends_with_130 = test_sigterm_ends_thread_ranks_with_143 = None
    test_a_signal_again_does_not_wait_for_the_step = test_a_signal_that_is_ignored_stays_so = None

    def launch(self, *arguments):
        mpirun = [os.environ.get("MPIRUN", "mpirun"), "--oversubscribe", "--bind-to", "none", "--quiet", "-np", "2"]
        ranks = (*mpirun, "bash", "-c", self.RANK, "bash")
        process = self.start(*arguments, before=("bash", "-c", self.LAUNCH, "bash", ROOT, *ranks))
        self.wait_until((self.out / "trace.json.gz").exists, process)
        return process

    def test_a_signal_to_one_rank_ends_all(self):
        process = self.launch()
        os.kill(int((self.folder / "pid.1").read_text()), signal.SIGTERM)
        out, _ = self.finish(process, 143)
        self.assertRegex(out, r"(?m)^SIGTERM: stopped after step ")
        self.check_files("SIGTERM")

    def test_a_signal_to_the_launcher_ends_all(self):
        # Open MPI's mpirun passes it on a second later, takes nothing from its ranks any more, and kills them after
        # another second: long epochs, so that their lines do not fill the pipe to it.
        process = self.launch("--synthetic=20000")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertNotEqual(process.returncode, 0)  # Which code is the launcher's own affair.
        self.check_files("SIGTERM")


class WholeLines(ProgramTest):
    def test_programs_that_share_a_pipe_do_not_mix_their_lines(self):
        alone = self.run_program("--model-summary")
        self.assertGreater(len(alone.out), 4096, "more than goes into a pipe at once")
        readable, writable = os.pipe()
        fcntl.fcntl(writable, getattr(fcntl, "F_SETPIPE_SZ", 1031), 4096)  # Python's module names it since 3.10.
        processes = [subprocess.Popen([settings.bin / "train_resnet18", "--model-summary"], stdout=writable,
                                      env=environment()) for _ in range(4)]
        os.close(writable)
        time.sleep(3)  # Until all of them wait for a reader.
        with os.fdopen(readable, encoding="utf-8") as pipe:
            lines = pipe.read().splitlines()
        self.assertEqual([process.wait() for process in processes], 4 * [0])
        expected = collections.Counter(4 * alone.out.splitlines())
        self.assertEqual(collections.Counter(lines), expected)

    def test_four_ranks_that_all_complain_do_so_in_whole_lines(self):
        if not settings.mpi:
            self.skipTest("this build has no MPI")
        for _ in range(3):
            run = self.run_program(*TINY, "--batch-size=17", "--steps=1", mpi=4)
            ours = [line for line in run.err.splitlines() if "rank" in line]
            self.assertGreaterEqual(len(ours), 1, run)
            for line in ours:
                self.assertRegex(line, r"^\[rank [0-3]/4\] error: .*got 64 samples, 4 ranks, batch_size 17.*$")
                self.assertEqual(line.count("error:"), 1, line)


if __name__ == "__main__":
    main()
