# SPDX-License-Identifier: MIT
# .ci/check.py - reads what .ci/run made: `counts JUNIT`, `loss METRICS STEPS`, `agree LOG`, `quiet STDERR`.
# Each exits non-zero with one line if the property does not hold.
import json
import math
import re
import sys
import xml.etree.ElementTree as xml


def counts(report):
    """Prints passed, failed and skipped cases of a CTest JUnit file."""
    suite = xml.parse(report).getroot()
    total, failed = int(suite.get("tests")), int(suite.get("failures"))
    skipped = int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
    print(total - failed - skipped, failed, skipped)


def loss(metrics, steps):
    """The last quarter's mean loss lies clearly under the first quarter's, and under that of guessing 10 classes."""
    with open(metrics, encoding="utf-8") as file:
        losses = [record["loss"] for record in map(json.loads, file) if "loss" in record]
    if len(losses) != int(steps):
        sys.exit(f"{metrics}: {len(losses)} steps recorded, {steps} asked for")
    quarter = len(losses) // 4
    first, last = sum(losses[:quarter]) / quarter, sum(losses[-quarter:]) / quarter
    print(f"loss {first:.4f} -> {last:.4f}")
    if not last < min(0.95 * first, math.log(10)):
        sys.exit(f"{metrics}: the loss does not fall below 95 % and ln 10")


def agree(log):
    """Every `params sha256` line names the same digest, and there is one."""
    with open(log, encoding="utf-8", errors="replace") as file:
        digests = re.findall(r"params sha256\W+([0-9a-f]{64})", file.read())
    if len(set(digests)) != 1:
        sys.exit(f"{log}: {len(digests)} fingerprints, {len(set(digests))} different: {sorted(set(digests))}")


def quiet(stderr):
    """Neither MPI nor the program complained."""
    with open(stderr, encoding="utf-8", errors="replace") as file:
        text = file.read().strip()
    if text:
        sys.exit(f"stderr says:\n{text}")


if __name__ == "__main__":
    command = {f.__name__: f for f in (counts, loss, agree, quiet)}
    if len(sys.argv) < 3 or sys.argv[1] not in command:
        sys.exit(__doc__ or "usage: check.py counts|loss|agree|quiet FILE …")
    try:
        command[sys.argv[1]](*sys.argv[2:])
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
