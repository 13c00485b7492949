# SPDX-License-Identifier: MIT
# tests/apps/stuck_test.py - a rank that sleeps for ever, in any phase, ends the job within the time-out and some
# seconds, and what is printed says who waited where for whom. Runs stuck_rank (stuck_rank.cpp). Read first: program.py.
import concurrent.futures
import os
import pathlib
import time

from program import ProgramTest, main, requires_mpi

TIMEOUT = 3  # Seconds. Enough for all processes of a test to start on a busy machine.


def running(mark):
    """Process ids of living processes that have `mark` in their environment."""
    found = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(mark) in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:  # It has ended, or is somebody else's.
            continue
    return found


class OnThreads(ProgramTest):
    how = {}
    # What rank 0 says, by the place where rank 1 sleeps.
    LINES = {
        "first": r"\w+, sequence 0.*: not done within 3000 ms; arrived: rank 0; missing: rank 1",
        "backward": r"sequence \d+, bucket 0 \(layers\..*: not done within 3000 ms; .*arrived: rank 0; missing: rank 1",
        "exit": r"close, sequence \d+: .*arrived: rank 0; missing: rank 1",
    }

    def mark(self, place):
        return f"STUCK_TEST={self.folder}/{place}."

    def stuck_at(self, place):
        mark, value = self.mark(place).split("=")
        return self.run_program(place, TIMEOUT, program="stuck_rank", seconds=60, **{mark: value}, **self.how)

    def test_a_sleeping_rank_ends_the_job_and_is_named(self):
        # All at once: they spend their time asleep.
        with concurrent.futures.ThreadPoolExecutor(len(self.LINES)) as pool:
            runs = dict(zip(self.LINES, pool.map(self.stuck_at, self.LINES)))
        for place, run in runs.items():
            with self.subTest(place=place):
                self.assertNotEqual(run.code, 0, run)
                self.assertGreater(run.seconds, TIMEOUT, run)
                self.assertLess(run.seconds, TIMEOUT + 5, run)
                self.assertRegex(run.err, r"(?m)^\[rank 0/2\] error: .*" + self.LINES[place])
                deadline = time.monotonic() + 5  # mpirun ends first, its ranks an instant later.
                while running(self.mark(place)) and time.monotonic() < deadline:
                    time.sleep(0.05)
                self.assertEqual(running(self.mark(place)), set(), "no process is left")

    def test_without_a_sleeper_all_is_well(self):
        run = self.stuck_at("nowhere")
        self.assertEqual((run.code, run.err), (0, ""), run)


@requires_mpi
class UnderMpi(OnThreads):
    how = {"mpi": 2}
    LINES = {"init": r"MPI_Init: not done within 3000 ms; arrived: rank 0; missing: rank 1 \(not at MPI_Init yet\)",
             **OnThreads.LINES}


if __name__ == "__main__":
    main()
