# SPDX-License-Identifier: MIT
# tests/apps/doctor_test.py - doctor is content with this machine, and finds faults that are planted: two OpenMP
# runtimes, wrong binding, a full disk, mixed MPI, and smaller ones. Read first: program.py, launch_test.py.
import json
import os
import pathlib
import subprocess
import unittest

from launch_test import MPICH, RANK, LaunchTest
from program import execute, main, requires_mpi, settings

CHECKS = ["processor", "amx", "onednn", "gpu", "clock", "cores", "threads", "openmp", "mpi", "single_copy", "shm",
          "disk", "load", "all_reduce"]


class DoctorTest(LaunchTest):
    def doctor(self, *arguments, before=(), **changes):
        """(exit code, {check: finding}, the run) of --json; of several findings of a check the worst."""
        run = execute([*before, settings.bin / "doctor", "--json", *arguments], 60, **changes)
        if "ASan runtime does not come first" in run.err:
            self.skipTest("no library can be planted before a sanitizer's")
        return run.code, self.findings(run), run

    def findings(self, run):
        report = json.loads(run.out)
        order = ["ok", "warning", "fault"]
        findings = sorted(report["findings"], key=lambda f: order.index(f["status"]))
        for f in findings:
            self.assertEqual(f["remedy"] == "", f["status"] == "ok", "what is not well has a remedy, what is has none")
            self.assertNotIn("\n", f["what"] + f["remedy"])
        counts = [sum(f["status"] == status for f in findings) for status in ("warning", "fault")]
        self.assertEqual([report["warnings"], report["faults"]], counts)
        self.assertEqual(run.code, 1 if counts[1] else 0, run)
        return {f["check"]: f for f in findings}

    def find(self, status, check, pattern, *arguments, **how):
        _, findings, run = self.doctor(*arguments, **how)
        self.assertEqual(findings[check]["status"], status, run)
        self.assertRegex(findings[check]["what"], pattern)
        return findings[check]


class Planted(DoctorTest):
    def planted(self, name):
        folder = os.environ.get("PLANTED")
        if folder is None:
            raise unittest.SkipTest("run by ctest, which says where the planted libraries are")
        return str(pathlib.Path(folder) / name)

    def test_all_is_well_here(self):
        code, findings, run = self.doctor("--out", self.folder)
        self.assertEqual(code, 0, run)
        self.assertEqual(list(json.loads(run.out)["findings"][i]["check"] for i in range(len(CHECKS))), CHECKS)
        self.assertEqual(findings["openmp"]["status"], "ok", run)
        self.assertRegex(findings["all_reduce"]["what"],
                         r"^2 ranks \(threads\), 4 MiB in [\d.]+ ms, bus bandwidth [\d.]+ GB/s, sums are right$")
        self.assertRegex(findings["gpu"]["what"], "no CUDA device|^this build has no|compute capability")

    def test_lines_say_the_same_as_json(self):
        run = execute([settings.bin / "doctor"], 60, OMP_NUM_THREADS="9999")
        *lines, last = run.out.splitlines()
        self.assertEqual([line.split()[1] for line in lines], CHECKS)
        for line in lines:
            self.assertRegex(line, r"^(ok +\w+ +\S((?! -> ).)*|(warning|fault) +\w+ +\S.* -> [A-Z].*[.])$")
        self.assertRegex(last, rf"^{len(CHECKS)} checks: 0 faults, [1-9]\d* warnings?$")
        self.assertEqual(run.code, 0, "warnings are no faults")

    def test_two_openmp_runtimes_are_a_fault(self):
        finding = self.find("fault", "openmp", "2 runtimes are loaded: .*libgomp.*, .*libomp.so.5",
                            LD_PRELOAD=self.planted("libomp.so.5"))
        self.assertIn("LD_PRELOAD", finding["remedy"])

    def test_a_disk_without_room_is_a_fault(self):
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", self.folder],
                                               capture_output=True, check=False).returncode != 0:
            self.skipTest("needs root, to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)
        self.find("warning", "disk", "2 MiB free of 2 MiB", "--out", self.folder / "not" / "there yet")
        (self.folder / "stuffing").write_bytes(bytes(3 << 19))
        finding = self.find("fault", "disk", "1 MiB cannot be written: No space left", "--out", self.folder)
        self.assertIn("--out DIR", finding["remedy"])
        self.assertEqual([f.name for f in self.folder.iterdir()], ["stuffing"], "nothing is left behind")

    def test_places_that_cannot_be_written_to_are_a_fault(self):
        self.find("fault", "disk", "^/proc cannot be written to", "--out", "/proc/run")
        (self.folder / "file").write_text("in the way")
        self.find("fault", "disk", "file is no directory", "--out", self.folder / "file")

    def test_too_many_threads_are_a_warning(self):
        self.find("warning", "threads", r"OMP_NUM_THREADS=9999, but \d+ core", OMP_NUM_THREADS="9999")
        self.find("warning", "threads", "OMP_NUM_THREADS=many is no number", OMP_NUM_THREADS="many")

    def test_a_busy_machine_is_a_warning(self):
        busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
        try:
            self.find("warning", "load", r"others keep \d+\.\d of \d+ cores? busy")
        finally:
            busy.kill()
            busy.wait()

    def test_a_library_held_back_is_a_warning(self):
        if " avx512f " not in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"):
            self.skipTest("nothing to hold back: no AVX-512")
        finding = self.find("warning", "onednn", "may not use this processor's AVX-512: DNNL_MAX_CPU_ISA=AVX2",
                            DNNL_MAX_CPU_ISA="AVX2")
        self.assertEqual(finding["remedy"], "Unset DNNL_MAX_CPU_ISA.")

    def test_fewer_cores_than_the_machine_has_are_a_warning(self):
        if os.cpu_count() == 1:
            self.skipTest("a machine of one core")
        core = min(os.sched_getaffinity(0))
        self.find("warning", "cores", rf"may use 1 of \d+ cores \({core}\)", before=("taskset", "-c", core))

    def test_containers_without_ptrace_are_fine_unless_told_otherwise(self):  # [A24]
        preload = self.planted("libplanted_no_ptrace.so")
        self.find("ok", "single_copy", "may not read .*single_copy_mechanism=none", LD_PRELOAD=preload)
        finding = self.find("warning", "single_copy", "=cma makes Open MPI try and complain", LD_PRELOAD=preload,
                            OMPI_MCA_btl_vader_single_copy_mechanism="cma")
        self.assertIn("none", finding["remedy"])

    def test_usage_errors_exit_2(self):
        for arguments in (("--no-such",), ("--timeout=0",), ("--timeout=soon",), ("stray",)):
            run = execute([settings.bin / "doctor", *arguments], 20)
            self.assertEqual(run.code, 2, run)


@requires_mpi
class UnderMpi(DoctorTest):
    def on_ranks(self, ranks, *arguments, before=()):
        run = execute([*before, settings.bin / "launch", "-q", "-n", ranks, "--", settings.bin / "doctor", "--json",
                       *arguments], 90)
        return self.findings(run), run

    def test_all_is_well_on_ranks(self):
        findings, run = self.on_ranks(2)
        self.assertEqual(run.code, 0, run)
        self.assertRegex(findings["binding"]["what"], "^2 ranks, bound to no core of their own")
        reduced = [f["what"] for f in json.loads(run.out)["findings"] if f["check"] == "all_reduce"]
        self.assertEqual([what.split(",")[0] for what in reduced],
                         ["2 ranks (threads)", "2 ranks (mpi + shared memory)"])

    def test_ranks_bound_to_one_core_are_a_fault(self):
        if os.cpu_count() == 1:
            self.skipTest("a machine of one core")
        core = min(os.sched_getaffinity(0))
        findings, run = self.on_ranks(3, before=("taskset", "-c", core))
        self.assertEqual(findings["binding"]["status"], "fault", run)
        self.assertRegex(findings["binding"]["what"], rf"^all 3 ranks of .* share 1 core \({core}\) of \d+$")
        self.assertIn("--bind-to none", findings["binding"]["remedy"])

    def test_what_is_wrong_on_one_rank_is_told_with_its_name(self):
        script = f'[ {RANK} = 1 ] && export OMP_NUM_THREADS=9999; exec "$0" --json'
        run = execute([settings.bin / "launch", "-q", "-n", 2, "--", "sh", "-c", script, settings.bin / "doctor"], 90)
        finding = self.findings(run)["threads"]
        self.assertEqual(finding["status"], "warning", run)
        self.assertRegex(finding["what"], r"^\[rank 1\] OMP_NUM_THREADS=9999")

    def test_a_rank_that_does_not_come_is_missed_in_time(self):
        script = f'[ {RANK} = 1 ] && exec sleep 50; exec "$0" --json --timeout 2'
        run = execute([settings.bin / "launch", "-q", "-n", 2, "--", "sh", "-c", script, settings.bin / "doctor"], 90)
        self.assertLess(run.seconds, 30)
        finding = self.findings(run)["all_reduce"]
        self.assertEqual(finding["status"], "fault", run)
        self.assertRegex(finding["what"], "MPI_Init: not done within 2000 ms.*missing: rank 1")

    def test_mixed_mpi_is_a_fault(self):
        _, other = self.own_family()
        said = "MPICH 4.0.2" if other == MPICH else "Open MPI 4.1.4"
        self.fake(other, name="mpiexec")
        path = f"{self.folder / 'fake'}:{os.environ['PATH']}"
        finding = self.find("fault", "mpi", f"mpiexec is {said}, but this build uses ", PATH=path)
        self.assertIn("rank 0 of 1", finding["remedy"])
        # Started by the other's launcher: found before MPI starts, because each process would be alone in its world.
        alien = ({"PMI_RANK": "0", "PMI_SIZE": "2"} if other == MPICH else
                 {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"})
        self.find("fault", "mpi", "started by the launcher of ", **alien)

    def test_no_launcher_is_a_warning(self):
        finding = self.find("warning", "mpi", "neither mpirun nor mpiexec is on the PATH", PATH=str(self.folder))
        self.assertRegex(finding["remedy"], "apt-get install (openmpi-bin|mpich)")


if __name__ == "__main__":
    main()
