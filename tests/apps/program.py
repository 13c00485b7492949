# SPDX-License-Identifier: MIT
# tests/apps/program.py - runs build/bin/train_resnet18 as a user would: alone, with --ranks N, or under mpirun through
# scripts/lib.sh. Shared by the *_test.py files beside it; each of their classes is a CTest entry. Usage of those:
#   python3 refusals_test.py --bin build/bin --mpi ON [CLASS…]
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 4  # What CTest takes for "skipped", as with the Catch2 tests.

# Enough for what does not depend on the model: under 0.2 s. One thread a rank, so that sums are the same in all runs.
TINY = ("--model=mlp", "--synthetic=64", "--batch-size=8", "--threads=1", "--lr=0.01", "--limit-test=10")
# No randomness in what is trained on, so that worlds of different sizes see the same global batches.
IN_ORDER = ("--no-shuffle", "--no-augment")
STEP_KEYS = ["step", "epoch", "loss", "lr", "step_ms", "images_per_s", "comm_ms", "hidden_ms", "exposed_ms",
             "overlap_pct", "t_s", "plan_epoch", "bus_gb_s", "waited_ms", "straggler", "straggler_ms"]
EVALUATION_KEYS = ["event", "step", "epoch", "test_loss", "test_accuracy"]

settings = argparse.Namespace(bin=ROOT / "build" / "bin", mpi="OFF")


def environment(**changes):
    """The caller's, without what decides who is a rank and what flags are: these tests may run under a launcher."""
    launchers = ("OMPI_", "PMI_", "PMIX_", "PRTE_", "SLURM_", "MPI_", "BRIGADE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return {**kept, "OMP_WAIT_POLICY": "passive", **changes}


def last_wins(arguments):
    """Drops each `--flag=value` that comes again later, so that a test can override one of TINY's."""
    names = [str(argument).split("=")[0] for argument in arguments]
    return [a for i, a in enumerate(arguments) if "=" not in str(a) or names[i] not in names[i + 1:]]


class Run:
    """A finished process, and what it left in `folder` (--out)."""

    def __init__(self, code, out, err, seconds, folder=None):
        self.code, self.out, self.err, self.seconds, self.folder = code, out, err, seconds, folder

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n-- stdout:\n{self.out}\n-- stderr:\n{self.err}"

    @property
    def complaints(self):
        """Lines of our program on stderr, without what mpirun adds when a rank fails."""
        ours = r"(\[rank \d+/\d+\] )?error: |train_resnet18: "
        return [line for line in self.err.splitlines() if re.match(ours, line)]

    @property
    def sha(self):
        return re.fullmatch(r"(?s).*^params sha256 ([0-9a-f]{64})$.*", self.out, re.M)[1]

    @property
    def records(self):
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @property
    def steps(self):
        return [r for r in self.records if "event" not in r]

    @property
    def losses(self):
        return [r["loss"] for r in self.steps]

    @property
    def evaluations(self):
        return [r for r in self.records if "test_loss" in r]

    @property
    def config(self):
        return json.loads((self.folder / "config.json").read_text(encoding="utf-8"))

    @property
    def correct(self):
        """(correct, images) of the last evaluation, as printed."""
        return tuple(map(int, re.findall(r"\((\d+) of (\d+)\)", self.out)[-1]))


def execute(command, seconds, **changes):
    """Runs `command`; a hang ends it and everything it started, and is an AssertionError."""
    seconds *= int(os.environ.get("BRIGADE_TEST_PATIENCE", 1))  # Under sanitizers.
    begin = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=environment(**changes),
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # mpirun passes it on to its ranks.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"hangs: still running after {seconds} s: {' '.join(map(str, command))}") from None
    return Run(process.returncode, out, err, time.monotonic() - begin)


class ProgramTest(unittest.TestCase):
    """A folder for the test's files, and the ways to run the program."""

    maxDiff = None

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="brigade-apps-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.runs = 0

    def run_program(self, *arguments, ranks=1, mpi=0, program="train_resnet18", seconds=120, **changes):
        """`ranks` threads of one process, or `mpi` processes through the launcher of scripts/lib.sh."""
        command = [settings.bin / program, *last_wins(arguments)]
        if ranks > 1:
            command += ["--ranks", ranks]
        if mpi:
            command = ["bash", "-c", 'source "$1/scripts/lib.sh"; shift; mpi_run "$@"', "bash", ROOT, mpi, *command]
        return execute(command, seconds, **changes)

    def train(self, *arguments, **how):
        """A run that must succeed and has nothing to complain about; arguments override TINY's."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        defaults = [a for a in TINY if not ("--data" in arguments and a.startswith("--synthetic"))]
        run = self.run_program(*defaults, f"--out={folder}", *arguments, **how)
        self.assertEqual(run.code, 0, run)
        self.assertEqual(run.err, "", "a run that succeeds is silent on stderr")
        run.folder = folder
        return run

    def refuse(self, code, pattern, *arguments, **how):
        """A run that must end with `code` and one line that matches `pattern`, before it has trained anything."""
        run = self.run_program(*arguments, **how)
        with self.subTest(arguments=" ".join(map(str, arguments)), how=str(how)):
            self.assertEqual(run.code, code, run)
            self.assertGreaterEqual(len(run.complaints), 1, run)
            if not how.get("mpi"):
                self.assertEqual(run.err.splitlines(), run.complaints, "one line, nothing else")
                self.assertEqual(len(run.complaints), 1, run)
            for line in run.complaints:
                self.assertRegex(line, pattern)
            self.assertNotIn("step ", run.out, "refused before training")
        return run


def requires_mpi(test_class):
    """Skips the class where the build has no MPI."""

    def set_up_class(cls):
        super(test_class, cls).setUpClass()
        if not settings.mpi:
            raise unittest.SkipTest("this build has no MPI")

    test_class.setUpClass = classmethod(set_up_class)
    return test_class


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, default=settings.bin, help="folder of the programs")
    parser.add_argument("--mpi", default="OFF", help="whether the programs were built with MPI, as CMake says it")
    parser.add_argument("classes", nargs="*")
    parser.parse_args(namespace=settings)
    settings.mpi = settings.mpi.upper() in ("ON", "TRUE", "YES", "1")
    loader, module = unittest.TestLoader(), sys.modules["__main__"]
    suite = (loader.loadTestsFromNames(settings.classes, module) if settings.classes
             else loader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    for _, reason in result.skipped:
        print("skipped:", reason)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == 0:  # Of nothing but skips, or of nothing at all.
        sys.exit(SKIPPED if result.skipped else "no tests ran")
