#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# scripts/reliability/kill_while_saving.py - a run that saves at every step is killed (SIGKILL) at a random moment and
# resumed, again and again; then it is finished, and must have the parameters of a run that nobody disturbed.
#   scripts/reliability/kill_while_saving.py --trials 500 --bin build/bin [--ranks 2] [--seed 1]
# Prints one line of JSON; exit code 1 if a torn checkpoint stood under its final name, a step that had been saved was
# lost, or the end differs.
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RUN = ("--model=mlp", "--synthetic=64", "--batch-size=8", "--threads=1", "--schedule=constant", "--lr=0.001",
       "--ema=0.9", "--limit-test=2", "--eval-every=0", "-q")


def environment():
    launchers = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "BRIGADE_")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(launchers)}, "OMP_WAIT_POLICY": "passive"}


def complete_steps(folder):
    """Steps of directories under a final name."""
    return sorted(int(path.name[5:]) for path in folder.glob("step_??????"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    settings = parser.parse_args()
    dice = random.Random(settings.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="brigade-kill-"))
    out = folder / "run"
    command = [settings.bin / "train_resnet18", *RUN, f"--ranks={settings.ranks}", f"--out={out}", "--save-every=1",
               "--resume=auto"]
    torn, lost, removed, newest, begin = [], [], 0, 0, time.monotonic()

    def note(text, trial):
        nonlocal removed
        torn.extend((trial, line) for line in text.splitlines() if line.startswith("skipped checkpoint"))
        removed += sum(line.startswith("removed ") for line in text.splitlines())
        resumed = re.search(r"^goes on from .*, behind step (\d+) ", text, re.M)
        # Told by the run itself, so that the checkpoint has been loaded.
        if resumed and int(resumed[1]) < newest:
            lost.append((trial, newest, int(resumed[1])))

    for trial in range(settings.trials):
        with open(folder / "log", "w+", encoding="utf-8") as log:
            process = subprocess.Popen([*map(str, command), "--steps=100000000"], stdout=log, stderr=subprocess.STDOUT,
                                       env=environment())
            # Not before it saves again: then any moment.
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if max(complete_steps(out / "checkpoints"), default=0) > newest:
                    break
                time.sleep(0.005)
            time.sleep(dice.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            process.wait()
            log.seek(0)
            text = log.read()
        if process.returncode != -signal.SIGKILL:
            print(text, file=sys.stderr)
            lost.append((trial, "the run ended by itself", process.returncode))
        note(text, trial)
        newest = max(complete_steps(out / "checkpoints"), default=0)

    last = newest + 3
    ends = []
    whole = [settings.bin / "train_resnet18", *RUN, f"--ranks={settings.ranks}", f"--out={folder / 'whole'}"]
    for arguments, files in ((command, out), (whole, folder / "whole")):
        end = subprocess.run([*map(str, arguments), f"--steps={last}"], capture_output=True, text=True,
                             env=environment(), check=False)
        note(end.stdout, "last")
        lines = map(json.loads, (files / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        ends.append((re.findall(r"params sha256 (\w+)", end.stdout),
                     [(line["step"], line["loss"]) for line in lines if "event" not in line]))
    same = ends[0] == ends[1] and len(ends[0][0]) == 1
    print(json.dumps({"campaign": "kill_while_saving", "trials": settings.trials, "ranks": settings.ranks,
                      "torn": len(torn), "lost": len(lost), "leftovers_removed": removed, "steps": last,
                      "bit_identical": same, "seconds": round(time.monotonic() - begin, 1), "seed": settings.seed}))
    for problem in (*torn, *lost):
        print(problem, file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if same and not torn and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
