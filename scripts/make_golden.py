#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# scripts/make_golden.py - makes tests/models/golden/resnet18_10_steps.safetensors with PyTorch: losses, norms of
# the final parameters, and every 499th element of them (of all parameters one after another). Run with Debian's
# python3-torch and python3-torchvision: /usr/bin/python3 scripts/make_golden.py
import os
import sys

import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "parity"))
import oracle  # noqa: E402


def main():
    model = oracle.torch_resnet18()
    # In f64: two f32 implementations drift apart (rounding decides on which side of a ReLU a value falls), and
    # this is the middle between them.
    losses = oracle.torch_train(model, torch.float64)
    parameters = [parameter.detach().numpy() for parameter in model.parameters()]
    norms = [np.linalg.norm(array.astype(np.float64)) for array in parameters]
    path = os.path.join(ROOT, "tests", "models", "golden", "resnet18_10_steps.safetensors")
    oracle.save_safetensors(path, {
        "losses": np.array(losses),
        "norms": np.array(norms),
        "samples": np.concatenate([array.reshape(-1) for array in parameters])[::499].astype(np.float32),
    })
    print(path, os.path.getsize(path), "bytes; losses", " ".join(f"{loss:.4f}" for loss in losses))


if __name__ == "__main__":
    main()
