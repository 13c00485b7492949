# SPDX-License-Identifier: MIT
# tests/apps/faults_test.py - jobs in which a rank dies, throws, or computes NaN at a fault point: who says what, how
# soon all are gone, and when launch starts a job again. Random moments: scripts/chaos.sh. Read first: program.py.
import gzip
import json
import os
import re
import signal
import subprocess
import time

from program import TINY, ProgramTest, environment, execute, main, requires_mpi, settings
from stuck_test import running

STEPS = (*TINY, "--steps=6", "--eval-every=1")


class FaultTest(ProgramTest):
    def setUp(self):
        super().setUp()
        if "this build has no fault points" in self.run_program(*TINY, BRIGADE_FAULT="start:action=delay=1ms").err:
            self.skipTest("this build has no fault points")

    def errors(self, run):
        """{rank: its lines of error}"""
        found = {}
        for rank, text in re.findall(r"^\[rank (\d+)/\d+\] error: (.*)$", run.err, re.M):
            found.setdefault(int(rank), []).append(text)
        return found

    def launch(self, *arguments, ranks=3, flags=(), seconds=60, **changes):
        command = [settings.bin / "launch", "-q", "-n", ranks, *flags, "--", settings.bin / "train_resnet18",
                   *arguments]
        return execute(command, seconds, FAULTS_TEST=str(self.folder), **changes)

    def nobody_is_left(self):
        deadline = time.monotonic() + 5
        while running(f"FAULTS_TEST={self.folder}") and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(running(f"FAULTS_TEST={self.folder}"), set(), "no process is left")


class Language(FaultTest):
    def test_what_is_unknown_is_refused_with_what_there_is(self):
        for fault, what in (("gradients:action=nan", r'unknown fault point "gradients"; choose from start, wrapping, '),
                            ("gradient:action=burn", r'unknown fault action "burn"; choose from throw, delay, '),
                            ("start:action=nan", "nan cannot happen at start; choose from throw, ")):
            run = self.run_program(*STEPS, BRIGADE_FAULT=fault)
            self.assertEqual(run.code, 2, run)
            self.assertRegex(run.err, rf"^BRIGADE_FAULT={re.escape(fault)}: .*{what}")
            self.assertNotIn("step ", run.out)

    def test_seed_and_faults_are_told(self):
        run = self.run_program(*STEPS, BRIGADE_FAULT="bucket:hit=3:action=delay=1ms;seed=11", ranks=2)
        self.assertEqual(run.code, 0, run)
        self.assertIn("fault: BRIGADE_FAULT=bucket:hit=3:action=delay=1ms;seed=11; seed=11\n", run.err)
        self.assertRegex(run.err, r"(?m)^fault: bucket \(bucket \d .*\), visit 3, rank \d, step \d: delay$")


class NotFinite(FaultTest):
    """[A28]"""

    how = {"ranks": 3}
    SPEAKERS = 1  # Of ranks that are threads one speaks for all.

    def test_it_is_named_before_any_update(self):
        for point, what in (("data", "the loss is not finite"), ("activation", "the loss is not finite"),
                            ("weight", "the loss is not finite"),
                            ("gradient:label=layers.2.weight", "the loss is finite, but the gradient is not")):
            with self.subTest(point=point):
                run = self.run_program(*STEPS, BRIGADE_FAULT=f"{point}:rank=1:step=4:action=nan", **self.how)
                self.assertEqual(run.code, 1, run)
                errors = self.errors(run)
                self.assertEqual(len(errors), self.SPEAKERS, run)
                for lines in errors.values():
                    self.assertEqual(len(lines), 1, run)
                    self.assertRegex(lines[0], rf"ddp: step 4: {what}; first on rank 1, bucket \d+, parameter "
                                               r'"layers\..*"; nothing was updated')
                self.assertNotRegex(run.out, r"(?m)^step +[4-6]/")
        self.assertRegex(run.err, 'parameter "layers.2.weight"')

    def test_skipping_drops_the_step_on_all_ranks(self):
        run = self.run_program(*STEPS, "--non-finite=skip", BRIGADE_FAULT="gradient:rank=1:step=4:action=nan",
                               **self.how)
        self.assertEqual(run.code, 0, run)
        self.assertIsNotNone(run.sha, "all ranks have the same parameters")
        self.assertRegex(run.out, r"(?m)^step 4 skipped: the loss is finite, but the gradient is not; first on rank 1, "
                                  r'bucket \d+, parameter "layers\..*"$')


@requires_mpi
class NotFiniteUnderMpi(NotFinite):
    how = {"mpi": 3}
    SPEAKERS = 3


class Stuck(FaultTest):
    """[A26]"""

    how = {"ranks": 2}

    def test_who_waits_names_the_stuck_rank_and_leaves_a_trace(self):
        out = self.folder / "run"
        run = self.run_program(*STEPS, "--timeout=2", f"--out={out}",
                               BRIGADE_FAULT="backward:rank=1:step=4:action=hang", **self.how)
        self.assertEqual(run.code, 1, run)
        self.assertLess(run.seconds, 2 + 5 + 5, "time-out, the steps before it and a start on a busy machine")
        lines = self.errors(run)[0]
        self.assertEqual(len(lines), 1, run)
        self.assertRegex(lines[0], r"all_reduce.*, sequence \d+, bucket 0 \(layers\.4\.bias.*: not done within "
                                   r"2000 ms; arrived: rank 0; missing: rank 1 \(backward of step 4, ")
        trace = json.loads(gzip.decompress((out / "trace.json.gz").read_bytes()))
        self.assertTrue(any(event.get("ph") == "X" for event in trace["traceEvents"]))


@requires_mpi
class StuckUnderMpi(Stuck):
    how = {"mpi": 2}


@requires_mpi
class Losses(FaultTest):
    def test_each_rank_names_the_one_that_was_killed(self):
        for point, doing in (("start", "it had not joined the others"), ("wrapping", "wrapping the model"),
                             ("backward:step=3", "backward of step 3"), ("evaluation:hit=2", "evaluation of step"),
                             ("exit", "the end of step 6")):
            for backend in ("auto", "plain_mpi"):
                with self.subTest(point=point, backend=backend):
                    run = self.launch(*STEPS, "--backend", backend, BRIGADE_FAULT=f"{point}:rank=1:action=kill")
                    self.assertEqual(run.code, 137, run)
                    self.assertLess(run.seconds, 15, run)
                    errors = self.errors(run)
                    self.assertEqual(sorted(errors), [0, 2], run)
                    for lines in errors.values():
                        self.assertEqual(len(lines), 1, run)
                        self.assertRegex(lines[0], rf"rank 1 \(process \d+\) is gone; .*{doing}")
                    self.nobody_is_left()

    def test_an_exception_is_told_by_all(self):
        for backend in ("auto", "plain_mpi"):
            run = self.launch(*STEPS, "--backend", backend, BRIGADE_FAULT="backward:rank=2:step=2:action=throw")
            self.assertEqual(run.code, 1, run)
            self.assertLess(run.seconds, 10, run)
            errors = self.errors(run)
            self.assertEqual(sorted(errors), [0, 1, 2], run)
            for lines in errors.values():
                self.assertRegex(lines[0], "fault point backward: thrown as asked for")

    def test_ranks_end_with_their_launcher(self):
        launch = [str(settings.bin / "launch"), "-q", "-n", "2", "--"]
        mpirun = [os.environ.get("MPIRUN") or "mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"]
        for launcher in (launch, mpirun):
            changes = {"FAULTS_TEST": str(self.folder), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            command = [*launcher, settings.bin / "train_resnet18", *TINY, "--steps=100000", "--eval-every=0"]
            job = subprocess.Popen(command,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                   env=environment(**changes), start_new_session=True)
            while not job.stdout.readline().startswith("step "):
                self.assertIsNone(job.poll())
            begin = time.monotonic()
            job.send_signal(signal.SIGKILL)
            text = job.communicate(timeout=20)[1]
            self.nobody_is_left()
            self.assertLess(time.monotonic() - begin, 10)
            if launcher is launch:  # mpirun itself is who passes on what ranks say.
                self.assertRegex(text, r"\[rank [01]/2\] error: .*(launcher \(process \d+\)|rank [01] .*) is gone")


@requires_mpi
class Restarts(FaultTest):
    # Fails as often as the folder has no file for it, then tells what it was told.
    COUNTED = ('n=$(ls runs | wc -l); [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] && touch "runs/$n" && '
               'echo "run $n resume ${BRIGADE_RESUME:-no} ranks ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}"; ')

    def counted(self, then, *flags, ranks=1, **changes):
        (self.folder / "runs").mkdir(exist_ok=True)
        for file in (self.folder / "runs").iterdir():
            file.unlink()
        command = ["env", "-C", self.folder, settings.bin / "launch", "-q", "-n", ranks, *flags, "--", "sh", "-c",
                   self.COUNTED + then]
        return execute(command, 60, **changes)

    def test_a_job_that_fails_starts_again_and_is_told_to_resume(self):
        run = self.counted('[ "$n" = 2 ] || exit 3', "--max-restarts=5")
        self.assertEqual(run.code, 0, run)
        self.assertEqual(run.out, "run 0 resume no ranks 1\nrun 1 resume auto ranks 1\nrun 2 resume auto ranks 1\n")
        self.assertEqual(re.findall("restart [0-9] of 5 with 1 rank", run.err),
                         ["restart 1 of 5 with 1 rank", "restart 2 of 5 with 1 rank"])

    def test_not_more_often_than_allowed(self):
        run = self.counted("exit 3", "--max-restarts=1")
        self.assertEqual((run.code, run.out.count("run ")), (3, 2), run)
        run = self.counted("exit 3")
        self.assertEqual((run.code, run.out.count("run ")), (3, 1), run)

    def test_not_where_it_cannot_help(self):
        for code in (2, 75, 143):
            run = self.counted(f"exit {code}", "--max-restarts=3")
            self.assertEqual((run.code, run.out.count("run ")), (code, 1), run)

    def test_a_killed_rank_is_a_reason(self):
        run = self.counted('[ "$n" = 1 ] || kill -9 $$', "--max-restarts=1")
        self.assertEqual((run.code, run.out.count("run ")), (0, 2), run)

    def test_a_host_that_is_gone_is_left_out(self):
        version = subprocess.run([os.environ.get("MPIRUN") or "mpirun", "--version"], capture_output=True, text=True,
                                 check=False).stdout
        if "Open MPI" not in version:
            self.skipTest("needs Open MPI, whose agent can be chosen")
        agent = self.folder / "agent"
        agent.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        agent.chmod(0o755)
        run = self.counted("exit 0", "--max-restarts=1", "--hosts", "localhost:1,host.invalid:1", ranks=2,
                           OMPI_MCA_plm_rsh_agent=str(agent))
        self.assertEqual(run.code, 0, run)
        self.assertIn("launch: host host.invalid does not answer; going on without it", run.err)
        self.assertIn("restart 1 of 1 with 1 rank,", run.err)
        self.assertEqual(run.out, "run 0 resume auto ranks 1\n")


if __name__ == "__main__":
    main()
