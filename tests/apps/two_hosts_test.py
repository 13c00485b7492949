# SPDX-License-Identifier: MIT
# tests/apps/two_hosts_test.py - scripts/two_hosts.sh: what it refuses, that it tidies up, and that training over its
# link ends with the same bits as on one host. Skipped where network namespaces are not allowed. Read first: program.py.
import os
import re
import signal
import subprocess
import time

from program import ROOT, TINY, ProgramTest, environment, execute, main, requires_mpi, settings

SCRIPT = ROOT / "scripts" / "two_hosts.sh"
NOT_ALLOWED = 77


def namespaces():
    return set(re.findall(r"brigade-\d+-[ab]", subprocess.run(["ip", "netns"], capture_output=True, text=True,
                                                              check=False).stdout))


class Usage(ProgramTest):
    def test_usage_errors_exit_2(self):
        for arguments in ((), ("1gbit",), ("1gbit", "true"), ("fast", "--", "true"), ("1gbit; ls", "--", "true")):
            run = execute(["bash", SCRIPT, *arguments], 20)
            self.assertEqual(run.code, 2, run)
            self.assertEqual(len(run.err.splitlines()), 1, run)

    def test_help_says_how_to_use_it(self):
        run = execute(["bash", SCRIPT, "--help"], 20)
        self.assertEqual(run.code, 0, run)
        self.assertIn("usage: scripts/two_hosts.sh RATE -- COMMAND", run.out)

    def test_what_it_cannot_do_it_skips_with_a_reason(self):
        if os.geteuid() != 0:
            run = execute(["bash", SCRIPT, "none", "--", "true"], 20)
        else:
            run = execute(["bash", SCRIPT, "none", "--", "true"], 20, MPIRUN="no-such-mpirun")
        self.assertEqual(run.code, NOT_ALLOWED, run)
        self.assertRegex(run.err, "^two_hosts.sh: skipped: (needs root|no )")


@requires_mpi
class Runs(ProgramTest):
    def setUp(self):
        super().setUp()
        self.before = namespaces()

    def two_hosts(self, rate, *command):
        run = execute(["bash", SCRIPT, rate, "--", *command], 100)
        if run.code == NOT_ALLOWED:
            self.skipTest(run.err.strip())
        return run

    def assert_tidy(self):
        self.assertEqual(namespaces() - self.before, set(), "namespaces are left")

    def test_two_hosts_of_one_core_each(self):
        run = self.two_hosts("none", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname) $(nproc)")
        self.assertEqual(run.code, 0, run)
        lines = sorted(run.out.split("\n"))[1:]
        self.assertRegex(lines[0], r"^0 brigade-\d+-a 1$")
        self.assertRegex(lines[1], r"^1 brigade-\d+-b 1$")
        self.assert_tidy()

    def test_the_commands_code_is_passed_on(self):
        self.assertEqual(self.two_hosts("none", "sh", "-c", "exit 9").code, 9)
        self.assert_tidy()

    def test_training_between_hosts_ends_as_on_one(self):
        # Three buckets: above and below the size from which a ring is used.
        arguments = (*TINY, "--steps=4", "--sync=bucketed", "--bucket-mb=2", "--first-bucket-mb=0.01")
        run = self.two_hosts("1gbit", settings.bin / "train_resnet18", *arguments)
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out, r"2 ranks x 1 thread \(mpi\)")
        self.assertEqual(run.sha, self.run_program(*arguments, mpi=2).sha)
        self.assert_tidy()

    def test_the_link_is_as_slow_as_asked(self):
        # 3.1 MiB a step and direction take 260 ms at 0.1 Gbit/s: the link cannot be faster than that.
        run = self.two_hosts("100mbit", settings.bin / "train_resnet18", *TINY, "--steps=3", f"--out={self.folder}")
        self.assertEqual(run.code, 0, run)
        run.folder = self.folder
        self.assertGreater(min(step["comm_ms"] for step in run.steps), 200, run)

    def test_an_interrupt_leaves_nothing_behind(self):
        self.two_hosts("none", "true")  # Skips where it cannot work.
        for sent in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(["bash", SCRIPT, "none", "--", "sleep", "60"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
                                  start_new_session=True) as process:
                deadline = time.monotonic() + 20
                while not namespaces() - self.before and time.monotonic() < deadline:
                    time.sleep(0.05)
                self.assertNotEqual(namespaces(), self.before)
                process.send_signal(sent)
                self.assertEqual(process.wait(30), 128 + sent)
            self.assert_tidy()


if __name__ == "__main__":
    main()
