# SPDX-License-Identifier: MIT
# scripts/gpu_check.py - the parts of scripts/gpu_check.sh, each within its share of the time, each leaving its
# findings in the JSON file before the next begins. Standard library only.
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

# What issue 6 wants to see; ratios of one run.
CURVE, TRAINING = 1e-3, 1.3
GPU_TESTS = {False: r" on (a GPU|GPUs|GPUs under mpiexec -n \d)$",
             True: " on (the emulated GPU|emulated GPUs, one a rank)$"}
# Convolutions as plain loops take minutes a step.
MODEL = {False: "resnet18", True: "mlp"}


class Check:
    def __init__(self, a):
        self.a = a
        self.end = time.monotonic() + a.seconds
        self.result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                       "emulated": a.emulated, "parts": {}}
        self.env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", OMP_WAIT_POLICY="passive")
        if a.deps:
            library = a.deps.resolve() / "usr" / "lib" / "x86_64-linux-gnu"
            self.search_first(library)
        if a.emulated:
            self.search_first(a.build / "fake_gpu")
            self.env["FAKE_GPU_COUNT"] = "1"

    def search_first(self, folder):
        self.env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(folder), self.env.get("LD_LIBRARY_PATH")]))

    def save(self):
        scratch = self.a.out.with_suffix(".part")
        scratch.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        scratch.replace(self.a.out)

    def run(self, command, seconds, cwd=None, env=None):
        """Exit status, standard output and error; a command that takes longer is ended with all it started: 124."""
        left = min(seconds, self.end - time.monotonic())
        if left < 1:
            return 124, "", "no time left"
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   cwd=cwd, env=dict(self.env, **(env or {})), stdin=subprocess.DEVNULL,
                                   start_new_session=True, errors="replace")
        try:
            out, err = process.communicate(timeout=left)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return 124, out, err + f"\nended after {left:.0f} s"

    def program(self, name):
        return self.a.build / "bin" / name

    def part(self, name, function):
        begin = time.monotonic()
        found = {"ok": False}
        self.result["parts"][name] = found
        try:
            function(found)
        except Exception as error:  # A part that breaks must not take the others' results along.
            found["error"] = f"{type(error).__name__}: {error}"
        found["seconds"] = round(time.monotonic() - begin, 1)
        self.save()
        rest = {k: v for k, v in found.items() if k not in ("ok", "seconds") and not isinstance(v, (list, dict))}
        print(f"[{'ok' if found['ok'] else 'FAILED'}] {name} ({found['seconds']} s) {json.dumps(rest)[:300]}")

    def machine(self):
        query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version,memory.total", "--format=csv,noheader"]
        status, out, _ = self.run(query, 20) if shutil.which("nvidia-smi") else (1, "", "")
        gpus = [line.split(", ") for line in out.strip().splitlines()] if status == 0 else []
        self.result["gpus"] = gpus
        self.result["cpu_cores"] = os.cpu_count()
        status, out, _ = self.run(["nvcc", "--version"], 20) if shutil.which("nvcc") else (1, "", "")
        self.result["nvcc"] = out.strip().splitlines()[-1] if status == 0 else None
        status, out, _ = self.run([sys.executable, "-c", "import torch; print(torch.__version__)"], 60)
        self.result["torch"] = out.strip() if status == 0 else None
        return gpus

    def python_libraries(self):
        """Roots of cuDNN and NCCL as PyTorch's wheels bring them, for where the toolkit has none."""
        roots = {}
        for folder in map(pathlib.Path, sys.path):
            for name, variable in (("cudnn", "cuDNN_ROOT"), ("nccl", "NCCL_ROOT")):
                if (folder / "nvidia" / name / "include").is_dir():
                    roots.setdefault(variable, folder / "nvidia" / name)
        return roots

    def build(self, found):
        capability = self.result["gpus"][0][1].replace(".", "") if self.result["gpus"] else "90"
        options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBRIGADE_WITH_CUDA=ON",
                   f"-DBRIGADE_CUDA_ARCHITECTURES={capability}"]
        options += [f"-D{name}={root}" for name, root in self.python_libraries().items()]
        if self.a.deps:
            options.append(f"-DCMAKE_PREFIX_PATH={self.a.deps.resolve() / 'usr'}")
        for step, command in (("configure", ["cmake", "-S", self.a.root, "-B", self.a.build, *options]),
                              ("build", ["cmake", "--build", self.a.build, "--parallel", os.cpu_count()])):
            status, out, err = self.run(command, 240)
            if status != 0:
                found.update(failed=step, status=status, tail=(out + err)[-3000:])
                return
        found.update(ok=True, architecture=capability)

    def suite(self, found):
        report = self.a.build / "gpu_check.xml"
        report.unlink(missing_ok=True)
        status, out, _ = self.run(["ctest", "--test-dir", self.a.build, "--parallel", min(8, os.cpu_count()), "-R",
                                   GPU_TESTS[self.a.emulated], "--output-junit", report, "--no-tests=error"], 120)
        if not report.is_file():
            found.update(status=status, tail=out[-2000:])
            return
        suite = xml.parse(report).getroot()
        failed = [case.get("name") for case in suite.iter("testcase") if case.get("status") == "fail"]
        skipped = [case.get("name") for case in suite.iter("testcase") if case.get("status") in ("notrun", "disabled")]
        total = int(suite.get("tests"))
        # A suite that is skipped for want of a device has shown nothing.
        found.update(ok=status == 0 and total > len(skipped), cases=total, failed=failed, skipped=len(skipped))

    def sanitizer(self, found):
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            found["error"] = "no compute-sanitizer on the PATH"
            return
        found["tools"] = {}
        for name in ("memcheck", "racecheck", "synccheck"):
            command = [tool, "--tool", name, "--error-exitcode", "99", self.program("test_kernels"), "[kernels]~[slow]"]
            status, out, err = self.run(command, 45, env={"BRIGADE_TEST_DEVICE": "cuda"})
            summary = re.findall(r"=+ (?:ERROR|RACECHECK) SUMMARY.*", out + err)
            found["tools"][name] = {"status": status, "summary": summary[-1] if summary else (out + err)[-300:]}
        found["ok"] = all(t["status"] == 0 for t in found["tools"].values())

    def losses(self, device, steps):
        folder = self.a.build / f"gpu_check_{device}"
        shutil.rmtree(folder, ignore_errors=True)
        command = [self.program("train_resnet18"), "--model", MODEL[self.a.emulated], "--synthetic", "--device", device,
                   "--steps", steps, "--batch-size", 32, "--lr", 0.01, "--limit-test", 100, "--out", folder]
        status, out, err = self.run(command, 100)
        if status != 0:
            raise RuntimeError(f"train_resnet18 --device {device}: status {status}: {(err or out)[-400:]}")
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [record["loss"] for record in map(json.loads, lines) if "loss" in record]

    def parity(self, found):
        steps = 3 if self.a.emulated else 50
        cpu, gpu = self.losses("cpu", steps), self.losses("cuda", steps)
        apart = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(cpu, gpu))
        found.update(ok=len(cpu) == len(gpu) == steps and apart <= CURVE, steps=steps, largest_difference=apart,
                     wanted=CURVE, cpu=cpu, cuda=gpu)

    def ranks(self, found):
        """Several ranks on one GPU: by which transport, and that all hold the same parameters at the end."""
        found["runs"] = []
        launchers = {"threads": lambda n: ([], ["--ranks", n])}
        if shutil.which("mpirun"):
            launchers["mpirun"] = lambda n: (["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", n], [])
        for who, make in launchers.items():
            for ranks in (2, 4):
                before, after = make(ranks)
                command = [*before, self.program("train_resnet18"), "--model", MODEL[self.a.emulated], "--synthetic",
                           "--device", "cuda", "--steps", 2 if self.a.emulated else 20, "--batch-size", 8,
                           "--limit-test", 64, *after]
                status, out, err = self.run(command, 60)
                digests = set(re.findall(r"params sha256\W+([0-9a-f]{64})", out))
                transport = [line.strip() for line in out.splitlines() if line.startswith("device ")][:1]
                found["runs"].append({"launcher": who, "ranks": ranks, "status": status, "digests": len(digests),
                                      "transport": transport, "error": err[-300:] if status else ""})
        found["ok"] = all(r["status"] == 0 and r["digests"] == 1 for r in found["runs"])

    def ours(self, batch, *flags):
        command = [self.program("bench_train"), "--device", "cuda", "--precision", "bf16", "--no-bound", "--batch-size",
                   batch, "--steps", 50, "--warmup", 10, *flags, "--json", "-"]
        status, out, err = self.run(command, 60)
        return json.loads(out)["rows"][0]["images_per_s"] if status == 0 else f"status {status}: {err[-300:]}"

    def theirs(self, batch, mode):
        here = self.a.root / "apps" / "bench" / "peers"
        command = [sys.executable, here / "torch_train_cuda.py", "--batch-size", batch, "--mode", mode]
        status, out, err = self.run(command, 90, cwd=here)
        return json.loads(out)["images_per_s"] if status == 0 else f"status {status}: {err[-300:]}"

    def training(self, found):
        """Alternating, and each by its best setting: a ratio of one run."""
        found["rows"] = []
        for batch in (128, 512):
            row = {"batch_size": batch, "ours": {}, "torch": {}}
            for mode, flags in (("plain", []), ("graph", ["--cuda-graph"])):
                row["ours"][mode] = self.ours(batch, *flags)
                row["torch"][mode] = self.theirs(batch, mode)
            row["torch"]["compile"] = self.theirs(batch, "compile")
            best = {who: max([v for v in row[who].values() if isinstance(v, float)], default=math.nan)
                    for who in ("ours", "torch")}
            row["ratio_of_best"] = best["ours"] / best["torch"] if best["torch"] > 0 else None
            found["rows"].append(row)
            self.save()
        ratios = [row["ratio_of_best"] for row in found["rows"]]
        found.update(wanted=TRAINING, ok=all(r is not None and r >= TRAINING for r in ratios))


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", usage="%(prog)s [OPTIONS]; see --help")
    parser.add_argument("--root", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_check.json"))
    parser.add_argument("--seconds", type=float, default=470)
    parser.add_argument("--only", type=lambda words: words.split(","), default=None)
    parser.add_argument("--deps", type=pathlib.Path)
    parser.add_argument("--emulated", action="store_true")
    a = parser.parse_args()
    check = Check(a)
    parts = {"build": check.build, "suite": check.suite, "sanitizer": check.sanitizer, "parity": check.parity,
             "ranks": check.ranks, "training": check.training}
    unknown = [name for name in a.only or [] if name not in parts]
    if unknown:
        sys.exit(f"gpu_check: unknown part {unknown[0]}; choose from {', '.join(parts)}")
    gpus = check.machine()
    print(f"GPUs: {gpus or 'none'}; nvcc: {check.result['nvcc']}; torch: {check.result['torch']}")
    if not gpus and not a.emulated:
        check.result["error"] = "nvidia-smi finds no GPU (or is not there); --emulated tries this script without one"
    check.save()
    if "error" in check.result:
        print(f"gpu_check: {check.result['error']}; nothing was checked; see {a.out}", file=sys.stderr)
        return 1
    for name, function in parts.items():
        if a.only is None or name in a.only:
            check.part(name, function)
            if name == "build" and not check.result["parts"]["build"]["ok"]:
                break
    print(f"all of it in {a.out}")
    return 0 if all(p["ok"] for p in check.result["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
