# SPDX-License-Identifier: MIT
# scripts/chaos.py - campaigns against small training jobs. Every trial has a seed of its own, which is printed with
# what went wrong: --seed and --only repeat it. Read first: chaos_job.py. Run by chaos.sh.
import argparse
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

from chaos_job import ROOT, Job, fresh

# A job of a second: 48 steps, of which every 8th ends an epoch with an evaluation.
TOY = ("--model=mlp", "--synthetic=192", "--limit-test=12", "--batch-size=8", "--threads=1", "--lr=0.01", "--steps=48")
SAVING = ("--checkpoint-dir=saved", "--save-every=5")
EXIT_SECONDS, SIGNAL_SECONDS = 10, 5
SAVED = 75
WARM_UP = 2500  # Steps.
FULL = {"kill": 200, "launcher": 40, "term": 100, "stop": 40, "nan": 40, "soak": 1}
SMOKE = {"kill": 6, "launcher": 2, "term": 6, "stop": 4, "nan": 8, "soak": 1}
KILL_POINTS = ("start", "wrapping", "data", "backward", "gradient", "bucket", "optimizer", "evaluation", "save", "exit",
               "checkpoint.write", "checkpoint.fsync", "checkpoint.rename")
ONCE = ("start", "wrapping", "exit")  # In the life of a rank.


class Failed(Exception):
    """What a trial found to be wrong."""


def need(condition, what):
    if not condition:
        raise Failed(what)


class Campaign:
    def __init__(self, options, folder):
        self.bin, self.folder, self.options = options.bin, folder, options
        self.worst, self.counts = {}, {}
        flags = os.popen(f"{self.bin}/train_resnet18 --help").read()
        self.saves = "--checkpoint-dir" in flags
        self.reference, self.duration = {}, 1.5

    def job(self, trial, *arguments, saving=False, **how):
        folder = self.folder / f"trial-{trial}"
        if not folder.exists():
            fresh(folder)
        names = {argument.split("=")[0] for argument in arguments}
        toy = [argument for argument in TOY if argument.split("=")[0] not in names]
        return Job(self.bin, folder, [*toy, *(SAVING if saving and self.saves else ()), *arguments], **how)

    def sha(self, **how):
        """Of a run that nobody disturbs; once a world."""
        ranks = how.get("ranks", 3)
        if ranks not in self.reference:
            job = self.job(f"reference-{ranks}", saving=True, **how)
            job.wait_for_ranks()
            begin = time.monotonic()
            need(job.wait(120) == 0 and job.sha, f"the undisturbed run fails:\n{job.story}")
            self.reference[ranks] = job.sha
            # Moments lie between the first sight of all ranks and the end.
            self.duration = time.monotonic() - begin
        return self.reference[ranks]

    def note(self, what, seconds):
        self.worst[what] = round(max(self.worst.get(what, 0), seconds), 2)

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def resume(self, trial, **how):
        """The job goes on from what it saved and ends as if nothing had happened."""
        if not self.saves:
            self.count("resume not tried: no --checkpoint-dir in this build")
            return
        job = self.job(trial, "--resume=auto", saving=True, **how)
        try:
            need(job.wait(120) == 0, f"the resumed run fails:\n{job.story}")
            need(job.sha == self.sha(**how), "the resumed run ends with other parameters")
        finally:
            job.end()
        self.count("resumed bit-identically")

    def ended(self, job, since, victim):
        """After the loss of `victim` all are gone in time, and each that lived has named it in one line."""
        code = job.wait(EXIT_SECONDS + 10)
        seconds = time.monotonic() - since
        need(code is not None, f"still running {seconds:.1f} s later: {job.processes()}")
        self.note("exit_s", seconds)
        need(seconds <= EXIT_SECONDS, f"took {seconds:.1f} s to end")
        left = job.census()
        need(not left, f"left behind: {left}")
        errors = job.errors()
        if job.sha and not errors:  # All had left each other in order already.
            self.count("ended before it could matter")
            return
        need(code != 0, "exit code 0 after a loss")
        if not errors and not re.search(r"^(mlp|batch) ", job.text, re.M):
            # Before a rank has begun the others cannot know of it, and the launcher ends them within a second.
            self.count("lost before the ranks knew each other")
            return
        if victim is None and job.how == "mpirun":  # It was who passes on what ranks say.
            self.count("in: mpirun")
            return
        for rank in set(range(job.ranks)) - {victim}:
            lines = errors.get(rank, [])
            need(len(lines) == 1, f"rank {rank} said {len(lines)} lines instead of one")
            named = "the launcher" if victim is None else rf"rank {victim} \(process \d+\)"
            need(re.search(rf"{named}( \(process \d+\))? is gone", lines[0]),
                 f"rank {rank} does not name the lost one: {lines[0]}")
        where = re.search(r"is gone; (?:it was last in )?(.*?)(?: of step| ?,|$)", next(iter(errors.values()))[0])
        self.count("in: " + (where[1] if where and victim is not None else "launcher"))

    # One trial each. `random` is the trial's own.

    def kill(self, trial, chance):
        """Even trials: at a random moment; odd ones: at a fault point."""
        how = {"ranks": 3, "how": chance.choice(["launch", "mpirun"])}
        victim = chance.randrange(3)
        self.sha(**how)
        point = None
        if trial % 2 == 1:
            point = KILL_POINTS[trial // 2 % len(KILL_POINTS)]
            hit = 1 if point in ONCE else chance.randint(1, 6)
            point = f"{point}:rank={victim}:hit={hit}:action=kill"
        for attempt in range(10):
            name = f"{trial}-{attempt}"
            job = self.job(name, saving=True, fault=point, **how)
            if self.kill_in(job, point, victim, chance):
                break
            self.duration *= 0.9  # It ends sooner than the reference did.
        else:
            raise Failed("ten jobs ended before anybody could be killed")
        self.resume(name, **how)

    def kill_in(self, job, point, victim, chance):
        """Whether there was somebody to kill."""
        if point is None:
            ranks = job.wait_for_ranks()
            time.sleep(chance.uniform(0, self.duration))
            since = time.monotonic()
            try:
                os.kill(ranks[victim], signal.SIGKILL)
            except (KeyError, ProcessLookupError):
                job.end()
                return False
        else:
            while job.process.poll() is None and not re.search(r"^fault: .*: kill$", job.text, re.M):
                time.sleep(0.005)
            since = time.monotonic()
        try:
            self.ended(job, since, victim)
        except Failed as failure:
            raise Failed(f"{failure}\n{job.story}") from None
        finally:
            job.end()
        return True

    def launcher(self, trial, chance):
        how = {"ranks": 3, "how": chance.choice(["launch", "mpirun"])}
        self.sha(**how)
        job = self.job(trial, saving=True, **how)
        job.wait_for_ranks()
        time.sleep(chance.uniform(0, self.duration))
        since = time.monotonic()
        job.process.kill()
        try:
            self.ended(job, since, None)
        except Failed as failure:
            raise Failed(f"{failure}\n{job.story}") from None
        finally:
            job.end()
        self.resume(trial, **how)

    def term(self, trial, chance):
        """Odd trials: one rank; even ones: the launcher."""
        how = {"ranks": 3, "how": "launch" if trial % 2 == 0 else chance.choice(["launch", "mpirun"])}
        self.sha(**how)
        number = chance.choice([signal.SIGTERM, signal.SIGINT])
        job = self.job(trial, "--steps=4000" if not self.saves else "--steps=48", saving=True, **how)
        try:
            ranks = job.wait_for_ranks()
            need(job.wait_for_line(r"^batch \d"), f"does not begin:\n{job.story}")
            time.sleep(chance.uniform(0, 0.2 * self.duration))
            since = time.monotonic()
            try:
                os.kill(job.process.pid if trial % 2 == 0 else ranks[chance.randrange(3)], number)
            except ProcessLookupError:
                self.count("had ended already")
            code = job.wait(SIGNAL_SECONDS + 30)
            seconds = time.monotonic() - since
            self.note("signal_s", seconds)
            need(code is not None and seconds <= SIGNAL_SECONDS, f"took {seconds:.1f} s to end\n{job.story}")
            need(not job.census(), f"left behind: {job.census()}")
            if code == 0 and job.sha:
                self.count("ended before the signal")
                return
            # What one rank was told, the others know only as a wish to stop.
            right = [SAVED] if self.saves else [128 + signal.SIGTERM, 128 + number]
            need(code in right, f"exit code {code} instead of {right}\n{job.story}")
            self.count(f"ended with {code}")
        finally:
            job.end()
        self.resume(trial, **how)

    def stop(self, trial, chance):
        """Odd trials: for good; even ones: only for a moment, which must change nothing."""
        timeout, how = 3, {"ranks": 3, "how": chance.choice(["launch", "mpirun"])}
        self.sha(**how)
        victim = chance.randrange(3)
        point = ("start", "wrapping", "backward", "gradient", "bucket", "evaluation", "exit")[trial // 2 % 7]
        job = self.job(trial, f"--timeout={timeout}", fault=f"{point}:rank={victim}:hit=1:action=stop", **how)
        try:
            need(job.wait_for_line(r"^fault: .*: stop$"), f"does not come to {point}\n{job.story}")
            since = time.monotonic()
            if trial % 2 == 0:
                time.sleep(1)
                os.kill(job.rank_processes()[victim], signal.SIGCONT)
                need(job.wait(60) == 0 and job.sha == self.sha(**how), f"a moment's rest does harm\n{job.story}")
                self.count("went on")
                return
            code = job.wait(timeout + SIGNAL_SECONDS + 10)
            seconds = time.monotonic() - since
            self.note("stop_s", seconds)
            need(code not in (None, 0) and seconds <= timeout + SIGNAL_SECONDS,
                 f"code {code}, {seconds:.1f} s\n{job.story}")
            need(not job.census(), f"left behind: {job.census()}")
            for rank in {0, 1, 2} - {victim}:
                lines = job.errors().get(rank, [])
                named = rf"(missing: ranks? ([^;]*, )?{victim}\b|rank {victim} is stopped by a signal)"
                need(len(lines) == 1 and re.search(named, lines[0]),
                     f"rank {rank} does not name the stuck one\n{job.story}")
            self.count("named at " + point)
        finally:
            job.end()

    def nan(self, trial, chance):
        how = {"ranks": 3, "how": chance.choice(["launch", "mpirun", "threads"])}
        point = ("data", "activation", "weight", "gradient")[trial % 4]
        victim, step = chance.randrange(3), chance.randint(1, 20)
        hit = 1 if point == "data" else chance.randint(1, 5)
        job = self.job(trial, fault=f"{point}:rank={victim}:step={step}:hit={hit}:action=nan", **how)
        try:
            code = job.wait(60)
            need(code not in (None, 0), f"exit code {code}\n{job.story}")
            pattern = rf"ddp: step {step}: the (loss is finite, but the gradient is not|loss is not finite); " \
                      rf"first on rank {victim}, bucket \d+, parameter \".+\"; nothing was updated"
            errors = job.errors()
            ranks = set(range(3)) if how["how"] != "threads" else set(errors)
            need(errors and set(errors) == ranks, f"ranks {sorted(errors)} spoke\n{job.story}")
            for lines in errors.values():
                need(len(lines) == 1 and re.search(pattern, lines[0]), f"not named: {lines}\n{job.story}")
            last = max([int(n) for n in re.findall(r"^step +(\d+)/", job.text, re.M)], default=0)
            need(last < step, f"step {last} was made with it\n{job.story}")
            self.count(f"{point}, {'loss' if 'the loss is not finite' in job.text else 'gradient'}")
        finally:
            job.end()

    def soak(self, trial, chance):
        """Two ranks, many steps: memory and descriptors of each rank, by the second."""
        steps = self.options.steps
        job = self.job(trial, f"--steps={steps}", "--eval-every=100", ranks=2, how="launch")
        samples = {}
        try:
            ranks = job.wait_for_ranks()
            while job.process.poll() is None:
                for rank, process in ranks.items():
                    try:
                        status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8")
                        memory = sum(int(kb) for kb in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", status, re.M))
                        files = len(os.listdir(f"/proc/{process}/fd"))
                    except OSError:
                        continue
                    step = max((int(n) for n in re.findall(r"^step +(\d+)/", "\n".join(
                        line for _, line in job.lines[-20:]), re.M)), default=0)
                    samples.setdefault(rank, []).append((step, memory, files))
                time.sleep(0.2)
            need(job.wait(30) == 0, f"fails:\n{job.story}")
            for rank, found in samples.items():
                # The ledger keeps so many steps; what comes behind --steps, like a report, is no step.
                warm = [sample for sample in found if WARM_UP <= sample[0] < steps - 100]
                need(len(warm) >= 10, "too short to tell")
                growth, files = warm[-1][1] - warm[0][1], warm[-1][2] - warm[0][2]
                self.note(f"growth_kib_rank_{rank}", growth)
                self.note(f"descriptors_rank_{rank}", files)
                need(growth < 1024, f"rank {rank} grew by {growth} KiB")
                need(files <= 0, f"rank {rank} has {files} descriptors more")
            self.count(f"{steps} steps")
        finally:
            job.end()


def run(name, count, options, folder):
    campaign = Campaign(options, folder / name)
    begin, failures = time.monotonic(), []
    made = 0
    for trial in [options.only] if options.only is not None else range(count):
        made += 1
        seed = f"{options.seed}:{name}:{trial}"
        try:
            getattr(campaign, name)(trial, random.Random(seed))
        except Failed as failure:
            failures.append({"trial": trial, "what": str(failure)})
            print(f"[FAILED] {name} --seed {options.seed} --only {trial}: {failure}", file=sys.stderr, flush=True)
            if len(failures) >= options.stop_after:
                break
    passed = made - len(failures)
    print(f"{name}: {passed} of {made} trials right in {time.monotonic() - begin:.0f} s, worst {campaign.worst}",
          file=sys.stderr, flush=True)
    return {"campaign": name, "seed": options.seed, "trials": made, "passed": passed,
            "seconds": round(time.monotonic() - begin, 1), "worst": campaign.worst, "counts": campaign.counts,
            "failures": failures}


def main():
    parser = argparse.ArgumentParser(prog="chaos.sh", description="Breaks small jobs and says what became of the rest.")
    parser.add_argument("campaign", nargs="+", choices=[*FULL, "all"])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder of the programs")
    parser.add_argument("--trials", type=int, help=f"of each campaign; default: {FULL}")
    parser.add_argument("--smoke", action="store_true", help="a few trials of each, for CI")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a fresh one")
    parser.add_argument("--only", type=int, metavar="TRIAL", help="one trial of the campaign")
    parser.add_argument("--steps", type=int, help="of soak; default 20000, with --smoke 6000")
    parser.add_argument("--stop-after", type=int, default=5, help="failures")
    parser.add_argument("--json", type=pathlib.Path, help="file for the result; default: standard output")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    options.steps = options.steps or (6000 if options.smoke else 20000)
    print(f"chaos: seed {options.seed}", file=sys.stderr, flush=True)
    names = list(FULL) if "all" in options.campaign else options.campaign
    with tempfile.TemporaryDirectory(prefix="brigade-chaos-") as scratch:
        counts = SMOKE if options.smoke else FULL
        results = [run(name, options.trials or counts[name], options, pathlib.Path(scratch)) for name in names]
    text = json.dumps(results, indent=1) + "\n"
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    sys.exit(any(result["failures"] for result in results))


if __name__ == "__main__":
    main()
