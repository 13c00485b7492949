# SPDX-License-Identifier: MIT
# tests/apps/launch_test.py - launch: the command for each family of MPI, exit codes as the ranks gave them, and that no
# process is left, whoever ends first. Ranks are shell and Python one-liners where no training is needed.
# Read first: program.py.
import os
import re
import signal
import subprocess
import time

from program import TINY, ProgramTest, environment, execute, main, requires_mpi, settings
from stuck_test import running
from telemetry_test import on_terminal

# What launchers answer to --version, in short.
OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4"
OPEN_MPI_5 = "mpirun (Open MPI) 5.0.3"
MPICH = "HYDRA build details:\n    Version:          4.0.2"

RANK = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"

# A rank that says when it is up, and answers a signal as its first argument tells.
PATIENT_RANK = """
import signal, sys, time
def answer(number, frame):
    if sys.argv[1] == "save":
        time.sleep(2.5)  # Longer than Open MPI would wait.
        sys.exit(75)
if sys.argv[1] != "nothing":
    signal.signal(signal.SIGINT, answer)
    signal.signal(signal.SIGTERM, answer)
else:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.stdout.write("up\\n")  # In one piece: two ranks share the line.
sys.stdout.flush()
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.1)
"""


class LaunchTest(ProgramTest):
    def launch(self, *arguments, seconds=60, **changes):
        return execute([settings.bin / "launch", *arguments], seconds, **changes)

    def fake(self, version, name="mpirun", folder="fake"):
        """A launcher that says it is `version`, and the folder for a PATH."""
        file = self.folder / folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho '{version}'\n", encoding="utf-8")
        file.chmod(0o755)
        return file

    def dry_run(self, version, *arguments, **changes):
        """The words of the command."""
        run = self.launch("-q", "--dry-run", "--mpirun", self.fake(version), *arguments, **changes)
        self.assertEqual(run.code, 0, run)
        return run.out.strip()

    def own_family(self):
        """(a version of the family that the programs are built for, one of the other)."""
        version = subprocess.run([os.environ.get("MPIRUN") or "mpirun", "--version"], capture_output=True, text=True,
                                 check=False).stdout
        return (OPEN_MPI_4, MPICH) if re.search("Open MPI|OpenRTE|PRRTE", version) else (MPICH, OPEN_MPI_4)


class Words(LaunchTest):
    def test_open_mpi_is_told_all_that_it_wants_to_hear(self):  # [A24] [A25]
        mpirun = self.folder / "fake" / "mpirun"
        root = "--allow-run-as-root " if os.geteuid() == 0 else ""
        self.assertEqual(
            self.dry_run(OPEN_MPI_4, "-n", 4, "--", "true", "-x"),
            f"{mpirun} -np 4 --quiet {root}--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 "
            "--mca btl_vader_single_copy_mechanism none true -x")
        self.assertEqual(
            self.dry_run(OPEN_MPI_5, "-n", 4, "--tag", "--", "true"),
            f"{mpirun} -np 4 --quiet {root}--map-by :OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1 "
            "--output tag true")
        # What it says of itself when it is called by its other name.
        self.assertIn("--oversubscribe", self.dry_run("mpiexec (OpenRTE) 4.1.4", "-n", 4, "--", "true"))

    def test_mpich_is_told_the_same_in_its_words(self):
        mpirun = self.folder / "fake" / "mpirun"
        self.assertEqual(self.dry_run(MPICH, "-n", 4, "--tag", "--", "true"),
                         f"{mpirun} -np 4 -bind-to none -prepend-rank true")
        self.assertIn(" -hosts a,b ", self.dry_run(MPICH, "-n", 4, "--hosts", "a,b", "--", "true"))
        self.assertIn(" -f list ", self.dry_run(MPICH, "-n", 4, "--hostfile", "list", "--", "true"))
        self.assertIn(" -bind-to core:1 ", self.dry_run(MPICH, "-n", 1, "--bind", "cores", "--threads=1", "--", "true"))

    def test_several_hosts_keep_their_own_count_of_ranks_and_get_the_environment(self):
        command = self.dry_run(OPEN_MPI_4, "-n", 4, "--hosts", "a:2,b:2", "--threads=2", "--", "no/such/program")
        self.assertNotIn("oversubscribe", command)
        self.assertTrue(command.startswith("env OMP_NUM_THREADS=2 "), command)
        self.assertTrue(command.endswith(" --host a:2,b:2 -x OMP_NUM_THREADS no/such/program"), command)
        self.assertIn(" --hostfile list ", self.dry_run(OPEN_MPI_4, "-n", 2, "--hostfile", "list", "--", "true"))

    def test_cores_of_their_own_are_given_if_there_are_enough(self):
        cores = len(os.sched_getaffinity(0))
        command = self.dry_run(OPEN_MPI_4, "-n", 1, "--bind=cores", "--", "true")
        self.assertIn(f"env OMP_NUM_THREADS={cores} ", command)
        self.assertIn(f" --map-by slot:PE={cores} --bind-to core ", command)
        run = self.launch("-n", cores + 1, "--bind=cores", "--dry-run", "--mpirun", self.fake(OPEN_MPI_4), "--", "true")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, rf"(?m)^error: --bind cores: needs a core for each thread; got {cores + 1} ranks")

    def test_what_the_user_has_set_wins(self):
        command = self.dry_run(OPEN_MPI_4, "-n", 2, "--", "true", OMPI_MCA_mpi_yield_when_idle="0")
        self.assertNotIn("yield", command)

    def test_words_are_quoted_as_a_shell_wants_them(self):
        command = self.dry_run(MPICH, "-n", 1, "--", "sh", "-c", "echo it's $HOME")
        self.assertTrue(command.endswith(r"""sh -c 'echo it'\''s $HOME'"""), command)

    def test_a_width_that_belongs_to_no_terminal_is_not_passed_on(self):
        self.assertTrue(self.dry_run(MPICH, "-n", 1, "--", "true", COLUMNS="80").startswith("env -u COLUMNS "))

    def test_root_is_told(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        run = self.launch("-n", 2, "--dry-run", "--mpirun", self.fake(OPEN_MPI_4), "--", "true")
        notices = [line for line in run.err.splitlines() if "root" in line]
        self.assertEqual(len(notices), 1, run)
        self.assertRegex(notices[0], "^launch: you are root: .*--allow-run-as-root")

    def test_without_a_launcher_it_says_what_to_install(self):
        run = self.launch("-n", 2, "--", "/bin/true", PATH=str(self.folder), MPIRUN="")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, r"^error: launch: .*no mpirun or mpiexec on the PATH; "
                                  r"apt-get install (openmpi-bin|mpich), or run ranks as threads: PROGRAM --ranks 2\n$")

    def test_a_program_that_is_no_launcher_is_refused(self):
        run = self.launch("-n", 2, "--mpirun", self.fake("coreutils 9.1"), "--", "true")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, "must be the launcher of Open MPI or MPICH; got ")

    def test_usage_errors_exit_2(self):
        for arguments, what in (((), "--ranks"), (("-n", 0, "--", "true"), "--ranks"),
                                (("-n", 2, "true"), "true.* behind a --"),
                                (("-n", 2, "true", "--data", "D"), "flag of launch: --data; .* behind a --"),
                                (("-n", 2), "program"),
                                (("-n", 2, "--"), "program"), (("-n", 2, "--", "no-such"), "no-such"),
                                (("-n", 2, "--no-such", "--", "true"), "--no-such"),
                                (("-n", 2, "--hosts=a", "--hostfile=b", "--", "true"), "excludes"),
                                (("-n", 2, "--bind=maybe", "--", "true"), "--bind.*none.*cores")):
            run = self.launch(*arguments)
            self.assertEqual(run.code, 2, run)
            self.assertRegex(run.err, f"^launch: .*{what}.*; see --help\n$")


@requires_mpi
class Runs(LaunchTest):
    def test_a_launcher_of_the_other_family_is_refused_by_name_of_both(self):
        own, other = self.own_family()
        self.fake(other)
        # Alone it is refused, named it is taken with a warning.
        run = self.launch("-n", 2, "--", "/bin/true", PATH=str(self.folder / "fake"), MPIRUN="")
        self.assertEqual(run.code, 1, run)
        family = "(MPICH|Open MPI)"
        self.assertRegex(run.err, f"^error: launch: .* is {family} .*, but the programs are built for {family} ")
        run = self.launch("-n", 2, "--dry-run", "--mpirun", self.folder / "fake" / "mpirun", "--", "true")
        self.assertEqual(run.code, 0, run)
        self.assertIn("rank 0 of 1", run.err)
        # Where the right one is there too, it is taken.
        right = self.fake(own, name="mpiexec", folder="right")
        run = self.launch("-n", 2, "--dry-run", "--", "true", MPIRUN="",
                          PATH=f"{self.folder / 'fake'}:{right.parent}:/usr/bin:/bin")
        self.assertEqual(run.code, 0, run)
        self.assertTrue(run.out.startswith(f"{right} "), run)
        self.assertIn(f"taking {right}", run.err)

    def test_four_ranks_on_two_cores_train_and_yield(self):  # [A24] [A25]
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
        launch = ["taskset", "-c", cores, settings.bin / "launch", "-q", "-n", 4, "--"]
        run = execute([*launch, settings.bin / "train_resnet18", *TINY, "--steps=4"], 120)
        self.assertEqual(run.code, 0, run)
        self.assertEqual(run.err, "", "nothing to complain about")
        self.assertRegex(run.out, "4 ranks x 1 thread ")
        self.assertRegex(run.out, "(?m)^params sha256 [0-9a-f]{64}$")
        run = execute([*launch, "sh", "-c", f"echo {RANK} ${{OMPI_MCA_mpi_yield_when_idle:-1}}"], 60)
        self.assertEqual(sorted(run.out.splitlines()), [f"{rank} 1" for rank in range(4)], run)

    def test_exit_codes_are_those_of_the_ranks(self):
        for code in (0, 1, 2, 75, 130, 143):
            run = self.launch("-q", "-n", 2, "--", "sh", "-c", f"exit {code}")
            self.assertEqual(run.code, code, run)

    def test_a_rank_that_fails_ends_all(self):
        run = self.launch("-q", "-n", 3, "--", "sh", "-c", f"[ {RANK} = 1 ] && exit 3; sleep 50",
                          LAUNCH_TEST=str(self.folder))
        self.assertEqual(run.code, 3, run)
        self.assertLess(run.seconds, 20)
        self.assertEqual(running(f"LAUNCH_TEST={self.folder}"), set())

    def test_threads_reach_the_program(self):
        run = self.launch("-q", "-n", 2, "--threads=3", "--", settings.bin / "train_resnet18",
                          *[a for a in TINY if not a.startswith("--threads")], "--steps=1")
        self.assertEqual(run.code, 0, run)
        self.assertIn("2 ranks x 3 threads ", run.out)

    def test_tagged_lines_name_their_rank(self):
        run = self.launch("-q", "-n", 2, "--tag", "--", "sh", "-c", f"echo I am {RANK}")
        self.assertRegex(run.out, r"(?m)^\[(1,)?0\].*I am 0$")
        self.assertRegex(run.out, r"(?m)^\[(1,)?1\].*I am 1$")

    def test_on_a_terminal_ranks_know_its_width(self):
        code, out = on_terminal([settings.bin / "launch", "-q", "-n", 2, "--", "sh", "-c", "echo wide $COLUMNS"], 77)
        self.assertEqual((code, out.split()), (0, ["wide", "77"] * 2), out)
        if self.own_family()[0] == OPEN_MPI_4:  # The ranks of others have no terminal at all.
            code, out = on_terminal([settings.bin / "launch", "-q", "-n", 2, "--", settings.bin / "train_resnet18",
                                     *TINY, "--steps=20"], 70)
            self.assertEqual(code, 0, out)
            self.assertIn("20/20  ETA", out)


@requires_mpi
class Signals(LaunchTest):
    def start(self, answer, *arguments, disposition=signal.SIG_DFL):
        """A group of two patient ranks that are up; `disposition` of SIGINT as a shell would leave it."""
        command = [settings.bin / "launch", "-n", "2", *arguments, "--", "python3", "-c", PATIENT_RANK, answer]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=environment(LAUNCH_TEST=str(self.folder)), start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, disposition))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "up\n")
        return process

    def code_after(self, process, *signals):
        """Its exit code when it got `signals`, half a second apart; nothing of it must be left."""
        for number in signals:
            process.send_signal(number)
            time.sleep(0.5)
        try:
            code = process.wait(timeout=30)
        finally:
            process.kill()
        self.nobody_is_left()
        return code

    def nobody_is_left(self):
        deadline = time.monotonic() + 5
        while running(f"LAUNCH_TEST={self.folder}") and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(running(f"LAUNCH_TEST={self.folder}"), set(), "no process is left")

    def test_a_signal_ends_all_ranks_and_is_the_exit_code(self):
        self.assertEqual(self.code_after(self.start("nothing"), signal.SIGINT), 130)
        self.assertEqual(self.code_after(self.start("nothing"), signal.SIGTERM), 143)
        self.assertEqual(self.code_after(self.start("nothing"), signal.SIGHUP), 143, "a closed terminal")

    def test_ranks_that_save_have_the_time_and_their_exit_code(self):
        self.assertEqual(self.code_after(self.start("save"), signal.SIGINT), 75)
        self.assertEqual(self.code_after(self.start("save"), signal.SIGTERM), 75)

    def test_ranks_that_do_not_listen_are_ended(self):
        begin = time.monotonic()
        self.assertEqual(self.code_after(self.start("ignore", "--grace=0.2"), signal.SIGTERM), 143)
        self.assertEqual(self.code_after(self.start("ignore"), signal.SIGINT, signal.SIGINT), 130, "asked twice")
        self.assertLess(time.monotonic() - begin, 28, "not by patience")

    def test_in_the_background_of_a_script_it_is_deaf_to_the_terminal(self):
        process = self.start("nothing", disposition=signal.SIG_IGN)
        self.assertEqual(self.code_after(process, signal.SIGINT, signal.SIGTERM), 143)

    def test_a_rank_that_is_killed_is_reported(self):
        process = self.start("nothing")
        victim = next(id for id in running(f"LAUNCH_TEST={self.folder}")
                      if b"python3" in open(f"/proc/{id}/cmdline", "rb").read().split(b"\0")[0])
        os.kill(victim, signal.SIGKILL)
        code = self.code_after(process)
        self.assertIn(code, (137, 9))  # Hydra returns the signal's number.
        if code == 137:
            self.assertIn("launch: a rank was ended by signal 9 (Killed)", process.stderr.read())

    def test_if_launch_itself_is_killed_ranks_end(self):
        process = self.start("nothing")
        process.kill()
        process.wait()
        self.nobody_is_left()


if __name__ == "__main__":
    main()
