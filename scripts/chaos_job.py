# SPDX-License-Identifier: MIT
# scripts/chaos_job.py - a small training job under build/bin/launch, mpirun or on threads, and the census of what it
# leaves: processes, sockets, shared memory. Read next: chaos.py.
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LAUNCHER_VARIABLES = ("OMPI_", "PMI_", "PMIX_", "PRTE_", "SLURM_", "MPI_", "BRIGADE_")


def environment(**changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    return {**kept, "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_mpi_yield_when_idle": "1", **changes}


def variables_of(process):
    try:
        raw = pathlib.Path(f"/proc/{process}/environ").read_bytes()
    except OSError:  # It has ended, or is somebody else's.
        return {}
    pairs = (entry.split(b"=", 1) for entry in raw.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}


def state_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1][0]
    except (OSError, IndexError):
        return "X"


def shared_memory():
    """Names that outlive processes: files in /dev/shm. (Tests of the handover make some of their own meanwhile.)"""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("brigade_test_")}


def sockets():
    """Names of our abstract sockets, which must vanish with their processes."""
    text = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    return set(re.findall(r"@brigade-\d+-\S*", text))


class Job:
    """A running job. Its processes are known by a variable of their environment."""

    count = 0

    def __init__(self, bin_folder, folder, arguments, *, ranks=3, how="launch", fault="", launch_flags=()):
        Job.count += 1
        self.mark = f"{os.getpid()}.{Job.count}"
        self.ranks, self.how = ranks, how
        # Tests of others may leave names while ours run: only what a job adds to its own beginning counts.
        self.before = shared_memory(), sockets()
        program = [str(bin_folder / "train_resnet18"), *map(str, arguments)]
        command = {"launch": [str(bin_folder / "launch"), "-q", "-n", str(ranks), *launch_flags, "--", *program],
                   "mpirun": [os.environ.get("MPIRUN", "mpirun"), "--quiet", "--oversubscribe", "--bind-to", "none",
                              "-np", str(ranks), *program],
                   "threads": [*program, "--ranks", str(ranks)]}[how]
        changes = {"CHAOS_JOB": self.mark, **({"BRIGADE_FAULT": fault} if fault else {})}
        self.begin = time.monotonic()
        self.lines = []  # (seconds since the beginning, text), of both streams.
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=environment(**changes), text=True,
                                        errors="replace", start_new_session=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self.begin, line.rstrip("\n")))

    @property
    def text(self):
        return "\n".join(line for _, line in self.lines)

    @property
    def story(self):
        """The last of it, for people."""
        return "\n".join([f"[{seconds:.2f} s] {line}" for seconds, line in self.lines if "note:" not in line][-12:])

    def wait_for_line(self, pattern, seconds=60):
        """Whether a line that matches came."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if re.search(pattern, self.text, re.M):
                return True
            if self.process.poll() is not None and not self.reader.is_alive():
                return re.search(pattern, self.text, re.M) is not None
            time.sleep(0.002)
        return False

    def processes(self):
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            if variables_of(folder.name).get("CHAOS_JOB") == self.mark and state_of(folder.name) not in "ZX":
                found.append(int(folder.name))
        return found

    def rank_processes(self):
        """{rank: process} of those that have begun."""
        ranks = {}
        for process in self.processes():
            variables = variables_of(process)
            rank = variables.get("OMPI_COMM_WORLD_RANK", variables.get("PMI_RANK"))
            try:
                name = pathlib.Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue
            if rank is not None and name == "train_resnet18":
                ranks[int(rank)] = process
        return ranks

    def wait_for_ranks(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            ranks = self.rank_processes()
            if len(ranks) == self.ranks:
                return ranks
            time.sleep(0.005)
        return self.rank_processes()

    def wait(self, seconds):
        """The exit code when all of the job is gone; None if something is left after `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None and not self.processes():
                self.reader.join(timeout=5)
                return self.process.returncode
            time.sleep(0.02)
        return None

    def census(self):
        """What is left of it, after a moment: {} is right."""
        left = {}
        for _ in range(50):
            left = {"processes": len(self.processes()), "shared_memory": sorted(shared_memory() - self.before[0]),
                    "sockets": sorted(sockets() - self.before[1])}
            left = {what: value for what, value in left.items() if value}
            if not left:
                break
            time.sleep(0.1)
        return left

    def end(self):
        """By force, for the next trial's sake."""
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def errors(self):
        """{rank: its lines of error}."""
        found = {}
        for rank, text in re.findall(r"\[rank (\d+)/\d+\] error: (.*)$", self.text, re.M):
            found.setdefault(int(rank), []).append(text)
        return found

    @property
    def sha(self):
        found = re.search(r"^params sha256 ([0-9a-f]{64})$", self.text, re.M)
        return found[1] if found else None


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
