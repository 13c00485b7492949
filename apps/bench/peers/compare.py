# SPDX-License-Identifier: MIT
# apps/bench/peers/compare.py - bench_train and bench_all_reduce against PyTorch at its best settings, in alternating
# rounds: tables of ratios beside what we want to reach, and all figures as JSON. Started by scripts/compare_pytorch.sh.
import argparse
import datetime
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MEASURED = {"cifar": {32: 6, 128: 3}, "imagenet": {32: 24, 128: 12}}  # Steps: about a second each.

# What we want to reach, by what is compared.
WANTED = {("cifar", "f32"): 2.0, ("cifar", "bf16"): 2.3, ("imagenet", "f32"): 1.5, ("imagenet", "bf16"): 1.5}
BOUND, FIRST_STEP, SYNCHRONISATION, TWO_RANKS, FOUR_RANKS, ZERO_COPY = 0.70, 1.0, 8.0, 0.92, 0.85, 0.60


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def torch_environment():
    """PyTorch at its best: an allocator that keeps memory, and its AVX-512 kernels, which it leaves alone by itself."""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    notes = ["channels_last", "bf16 by autocast"]
    if "avx512" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        environment["ATEN_CPU_CAPABILITY"] = "avx512"
        notes.append("AVX-512 kernels")
    jemalloc = sorted(pathlib.Path("/usr/lib").glob("*/libjemalloc.so.2"))
    if jemalloc:
        environment.update(LD_PRELOAD=str(jemalloc[0]), MALLOC_CONF="dirty_decay_ms:-1,muzzy_decay_ms:-1")
        notes.append("jemalloc")
    else:
        environment.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(64 << 20))
        notes.append("malloc that keeps memory (no libjemalloc2)")
    return environment, ", ".join(notes)


class Comparison:
    def __init__(self, a):
        self.a = a
        self.torch_env, self.torch_notes = torch_environment()
        self.skipped = []
        self.result = {"date": datetime.datetime.utcnow().isoformat(timespec="seconds") + "Z",
                       "command": " ".join(["scripts/compare_pytorch.sh", *a.typed]), "rounds": a.rounds}
        self.has_torch = self.find_torch()
        self.has_mpi = self.find_mpi()

    def say(self, text=""):
        print(text, flush=True)

    def skip(self, what, why):
        self.skipped.append(f"{what}: {why}")
        self.say(f"skipped: {what}: {why}")

    def find_torch(self):
        probe = subprocess.run([self.a.python, "-c", "import torch; print(torch.__version__)"], capture_output=True,
                               text=True, check=False, env=self.torch_env)
        if probe.returncode == 0:
            self.result["torch"] = f"{probe.stdout.strip()} ({self.torch_notes})"
            return True
        last = (probe.stderr.strip().splitlines() or ["it does not start"])[-1]
        self.skip("PyTorch", f"{self.a.python} cannot import torch ({last}); apt-get install python3-torch")
        return False

    def find_mpi(self):
        probe = subprocess.run(self.ranks(2, "bench_all_reduce", "-e", "1K", "--mpi"), capture_output=True, text=True,
                               check=False)
        if probe.returncode != 0:
            last = (probe.stderr.strip().splitlines() or ["no message"])[-1]
            self.skip("ranks as processes, and MPI's all-reduce", f"mpirun of bench_all_reduce fails ({last})")
        return probe.returncode == 0

    def ranks(self, count, program, *arguments):
        launch = 'source "$1/scripts/lib.sh"; shift; mpi_run "$@"'
        return ["bash", "-c", launch, "bash", str(ROOT), str(count), str(self.a.bin / program), *arguments]

    def json_of(self, command, env=None):
        """What the program prints as JSON; None, with its last words, if it fails."""
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, env=env, cwd=HERE)
        if run.returncode == 0:
            return json.loads(run.stdout)
        self.skip(" ".join(str(c) for c in command), (run.stderr.strip().splitlines() or ["no message"])[-1])
        return None

    def ours(self, *arguments, ranks=1, mpi=True):
        flags = [str(x) for x in arguments]
        if ranks > 1 and mpi and self.has_mpi:
            command = self.ranks(ranks, "bench_train", *flags, "--json", "-")
        else:
            command = [self.a.bin / "bench_train", *flags, "--ranks", ranks, "--json", "-"]
        report = self.json_of(command)
        if report is None:
            return None
        self.result.setdefault("machine", report["machine"])
        self.foreign = max(getattr(self, "foreign", 0), report["foreign_cores"])
        return report["rows"][0]

    def torch(self, *arguments):
        if not self.has_torch:
            return None
        return self.json_of([self.a.python, HERE / "torch_train.py", *arguments], self.torch_env)

    def training(self):
        settings = list(itertools.product(self.a.stems, self.a.precisions, self.a.batch_sizes, self.a.threads))
        runs = {s: {"ours": [], "torch": []} for s in settings}
        for number in range(self.a.rounds):
            for s in settings:
                stem, precision, batch, threads = s
                steps = self.a.steps or MEASURED[stem].get(batch, 6)
                flags = ["--stem", stem, "--precision", precision, "--batch-size", batch, "--threads", threads,
                         "--steps", steps, "--warmup", 1]
                # The bounds take as long as many steps: once is enough.
                bound = [] if number == 0 and stem == "cifar" else ["--no-bound"]
                runs[s]["ours"].append(self.ours(*flags, *bound))
                runs[s]["torch"].append(self.torch(*flags))
            self.say(f"round {number + 1} of {self.a.rounds} done")
        line = "{:<10}{:<10}{:>6}{:>8}{:>8}{:>9}{:>7}{:>8}{:>10}{:>9}{:>10}{:>8}{:>8}{:>9}".format
        self.say("\ntraining ResNet-18 on 32x32 images, images/s")
        self.say(line("stem", "precision", "batch", "threads", "ours", "PyTorch", "ratio", "wanted", "peak MiB",
                      "PyTorch", "library's", "of it", "of own", "first s"))
        rows = []
        for s, run in runs.items():
            field = lambda who, name, run=run: median([r.get(name) for r in run[who] if r])
            mine, theirs = field("ours", "images_per_s"), field("torch", "images_per_s")
            row = {"stem": s[0], "precision": s[1], "batch_size": s[2], "threads": s[3], "ours": mine, "torch": theirs,
                   "ratio": mine / theirs if mine and theirs else None, "wanted": WANTED[s[0], s[1]],
                   "peak_mib": field("ours", "peak_resident_mib"),
                   "torch_peak_mib": field("torch", "peak_resident_mib"),
                   "library_bound": field("ours", "library_bound_images_per_s"),
                   "share_of_library_bound": field("ours", "share_of_library_bound"),
                   "own_bound": field("ours", "own_bound_images_per_s"),
                   "share_of_own_bound": field("ours", "share_of_own_bound"),
                   "gradients_and_buckets": field("ours", "gradients_and_buckets_of_gradients"),
                   "first_step_s": field("ours", "first_step_s"),
                   "rounds": {who: [r and r["images_per_s"] for r in run[who]] for who in run}}
            rows.append(row)
            self.say(line(*s, text(mine, ".1f"), text(theirs, ".1f"), text(row["ratio"], ".2f"), row["wanted"],
                          text(row["peak_mib"], ".0f"), text(row["torch_peak_mib"], ".0f"),
                          text(row["library_bound"], ".1f"), text(row["share_of_library_bound"], ".0%"),
                          text(row["share_of_own_bound"], ".0%"), text(row["first_step_s"], ".2f")))
        self.say("library's: images/s of the step's convolutions alone, each by the fastest of the library's algorithms"
                 "\nof it: what our step reaches of that; of own: of the same by our own fastest algorithms"
                 "\nfirst s: seconds from the start of the process to the end of its first step")
        self.say(f"wanted: at least {BOUND:.0%} of the library's, less memory than PyTorch, the first step within "
                 f"{FIRST_STEP:g} s")
        self.result["training"] = rows

    def ranks_table(self):
        steps, batch = self.a.steps or 8, 32 if not self.a.quick else 4
        costs, rows = {"ours": [], "torch": []}, {1: [], 2: [], 4: []}
        stem = self.a.stems[0]
        common = ["--stem", stem, "--steps", steps, "--warmup", 2]
        for _ in range(self.a.rounds):
            mine = self.ours(*common, "--no-bound", "--threads", 1, "--batch-size", batch, ranks=2)
            theirs = self.torch(*common, "--threads", 1, "--batch-size", batch, "--ranks", 2)
            costs["ours"].append(mine and mine["synchronisation_ms"]["p50"])
            costs["torch"].append(theirs and theirs["synchronisation_ms"]["p50"])
            rows[2].append(mine and mine["images_per_s"])
            # The same global batch on one rank with two threads, and on four ranks.
            for count, threads in ((1, 2), (4, 1)):
                other = self.ours(*common, "--no-bound", "--threads", threads, "--batch-size", 2 * batch // count,
                                  ranks=count)
                rows[count].append(other and other["images_per_s"])
        mine, theirs = median(costs["ours"]), median(costs["torch"])
        rate = {count: median(values) for count, values in rows.items()}
        times = theirs / mine if mine and theirs and mine > 0 else None
        self.say(f"\nranks ({stem} stem, f32, {2 * batch} images in all, {'processes' if self.has_mpi else 'threads'})")
        self.say(f"synchronisation of 2 ranks     {text(mine, '.1f')} ms a step, PyTorch DDP over gloo "
                 f"{text(theirs, '.1f')} ms: {text(times, '.1f')} x (wanted {SYNCHRONISATION:g} x)")
        two = rate[2] / rate[1] if rate[1] and rate[2] else None
        four = rate[4] / rate[2] if rate[4] and rate[2] else None
        self.say(f"2 ranks x 1 thread             {text(rate[2], '.1f')} images/s, {text(two, '.2f')} x of 1 rank x "
                 f"2 threads (wanted {TWO_RANKS} x)")
        self.say(f"4 ranks x 1 thread, {os.cpu_count()} cores    {text(rate[4], '.1f')} images/s, {text(four, '.2f')} "
                 f"x of 2 ranks (wanted {FOUR_RANKS} x)")
        self.result["ranks"] = {"synchronisation_ms": mine, "torch_synchronisation_ms": theirs, "times": times,
                                "images_per_s": rate, "two_of_one": two, "four_of_two": four, "rounds": costs}

    def all_reduce(self):
        last = "64K" if self.a.quick else "64M"
        flags = ["-b", "1K", "-e", last, "-f", "4", "-n", "20", "--zero-copy-baseline", "--json", "-"]
        command = (self.ranks(2, "bench_all_reduce", *flags, "--mpi") if self.has_mpi
                   else [self.a.bin / "bench_all_reduce", "--ranks", "2", *flags])
        mine, gloo = [], []
        for _ in range(self.a.rounds):
            mine.append(self.json_of(command))
            sizes = ",".join(str(row["size"]) for row in mine[-1]["rows"]) if mine[-1] else "1024"
            gloo.append(self.json_of([self.a.python, HERE / "gloo_all_reduce.py", "--sizes", sizes], self.torch_env)
                        if self.has_torch else None)
        mine = [m for m in mine if m]
        if not mine:
            return
        self.say(f"\nall-reduce of 2 ranks, µs{'':>11}{'ours':>10}{'zero-copy':>11}{'of it':>8}{'MPI':>11}{'gloo':>11}"
                 f"   (wanted: {ZERO_COPY:.0%} from 1 MiB on, and faster than both)")
        rows = []
        for index, first in enumerate(mine[0]["rows"]):
            at = lambda name: median([m["rows"][index][name]["p50"] for m in mine if name in m["rows"][index]])
            row = {"size": first["size"], "ours_us": at("in_place_us"), "zero_copy_us": at("zero_copy_us"),
                   "mpi_us": at("mpi_us"), "gloo_us": median([g["us"].get(str(first["size"])) for g in gloo if g])}
            row["share"] = row["zero_copy_us"] / row["ours_us"] if row["zero_copy_us"] else None
            rows.append(row)
            self.say(f"{row['size']:>34}{text(row['ours_us'], '.1f'):>12}{text(row['zero_copy_us'], '.1f'):>11}"
                     f"{text(row['share'], '.0%'):>8}{text(row['mpi_us'], '.1f'):>11}{text(row['gloo_us'], '.1f'):>11}")
        self.result["all_reduce"] = rows


def text(value, form):
    return "-" if value is None else format(value, form)


def main():
    numbers = lambda words: [int(n) for n in words.split(",")]
    words = lambda text_: text_.split(",")
    parser = argparse.ArgumentParser(
        prog="scripts/compare_pytorch.sh",
        description="Trains ResNet-18 here and in PyTorch in turn and prints ratios. About 9 minutes on 2 cores; "
                    "nothing else should run.")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one small round whose figures mean nothing")
    parser.add_argument("--rounds", type=int, default=3, help="of everything, in turn; medians are printed")
    parser.add_argument("--steps", type=int, default=0, help="measured steps of each run; default: about a second's")
    parser.add_argument("--stems", type=words, default=["cifar", "imagenet"])
    parser.add_argument("--precisions", type=words, default=["f32", "bf16"])
    parser.add_argument("--batch-sizes", type=numbers, default=[32, 128])
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--only", type=words, default=["training", "ranks", "all_reduce"],
                        help="parts: training, ranks, all_reduce")
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python with torch")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("compare_pytorch.json"), metavar="FILE",
                        help="where all figures go")
    a = parser.parse_args()
    hidden = ("--bin", str(a.bin))  # Added by the script.
    a.typed = [word for word in sys.argv[1:] if word not in hidden]
    if a.quick:
        a.rounds, a.steps, a.stems, a.precisions, a.batch_sizes, a.threads = 1, 1, ["imagenet"], ["f32"], [4], [1]
    comparison = Comparison(a)
    comparison.say(f"PyTorch {comparison.result.get('torch', 'is not there')}")
    for part in a.only:
        {"training": comparison.training, "ranks": comparison.ranks_table, "all_reduce": comparison.all_reduce}[part]()
    comparison.result.update(skipped=comparison.skipped, foreign_cores=getattr(comparison, "foreign", None))
    if getattr(comparison, "foreign", 0) > 0.1:
        comparison.say(f"\nothers used up to {comparison.foreign:.0%} of a core during our runs: do not trust these "
                       "figures")
    a.json.write_text(json.dumps(comparison.result, indent=1) + "\n", encoding="utf-8")
    comparison.say(f"\n{comparison.result.get('machine', '')}\nall figures in {a.json}")


if __name__ == "__main__":
    main()
