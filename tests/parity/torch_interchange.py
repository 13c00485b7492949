#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# tests/parity/torch_interchange.py - compares with PyTorch and torchvision: state files both ways, outputs on one
# input, and all parameters after the recipe's ten steps. Usage: torch_interchange.py PROGRAM, which is
# tests/parity/interchange.cpp. Exits 4 (skipped) where PyTorch is not installed.
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import torchvision  # noqa: F401
    import oracle
except ImportError as error:
    print(f"skipped: {error} (Debian: apt install python3-torch python3-torchvision)")
    sys.exit(4)

FAILURES = []


def check(what, value, limit):
    ok = value <= limit
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {value:.3g} (limit {limit:g})")
    if not ok:
        FAILURES.append(what)


def relative(ours, theirs):
    ours, theirs = ours.double(), theirs.double()
    return ((ours - theirs).norm() / theirs.norm().clamp_min(1e-30)).item()


def as_torch(tensors):
    return {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}


def logits(model):
    model.eval()
    with torch.no_grad():
        return model(torch.from_numpy(oracle.batch(0)[0]))


def main(program, folder):
    torch.set_num_threads(min(2, len(os.sched_getaffinity(0))))
    path = lambda name: os.path.join(folder, name)  # noqa: E731

    subprocess.run([program, "train", path("ours")], check=True)
    ours = as_torch(oracle.load_safetensors(path("ours")))
    our_losses = ours.pop("losses")

    theirs = oracle.torch_resnet18()
    their_losses = torch.tensor(oracle.torch_train(theirs), dtype=torch.float64)
    worst = ((our_losses - their_losses).abs() / their_losses).max().item()
    check("largest relative difference of a loss", worst, 1e-3)
    state = theirs.state_dict()
    check("state entries that differ in name or order", int(list(ours) != list(state)), 0)
    worst = max((relative(ours[name], value), name) for name, value in theirs.named_parameters())
    check(f"largest relative difference of a parameter ({worst[1]})", worst[0], 1e-3)
    statistics = [name for name in state if "running" in name]
    worst = max((relative(ours[name], state[name]), name) for name in statistics)
    check(f"largest relative difference of a running statistic ({worst[1]})", worst[0], 1e-3)
    counts = [int(ours[name]) for name in state if "tracked" in name]
    check("batch counts other than the steps", sum(count != oracle.STEPS for count in counts), 0)

    # Our file in their model, and their file in our program: the outputs must be those of the other side.
    loaded = oracle.torch_resnet18()
    loaded.load_state_dict(ours, strict=True)
    for what, model in (("our state", loaded), ("their state", theirs)):
        state = {name: value.numpy() for name, value in model.state_dict().items()}
        oracle.save_safetensors(path("state"), state)
        subprocess.run([program, "forward", path("state"), path("out")], check=True)
        difference = relative(as_torch(oracle.load_safetensors(path("out")))["logits"], logits(model))
        check(f"relative difference of the outputs from {what}", difference, 1e-4)
    return 1 if FAILURES else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(main(sys.argv[1], scratch))
