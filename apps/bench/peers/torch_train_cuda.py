# SPDX-License-Identifier: MIT
# apps/bench/peers/torch_train_cuda.py - bench_train --device cuda in PyTorch, at its best settings: channels_last, bf16
# by autocast, fused SGD; plainly, compiled, or as one CUDA graph a step. Prints one JSON object. Started by
# scripts/gpu_check.py; --device cpu only serves to test this file where there is no GPU.
import argparse
import json
import time

START = time.monotonic()

import torch  # noqa: E402 - the import belongs to the time until the first step.
from torch.nn import functional  # noqa: E402

from resnet import ResNet18  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description="Times training steps of ResNet-18 in PyTorch on one GPU.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--stem", choices=("cifar", "imagenet"), default="cifar")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="bf16")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50, help="measured")
    parser.add_argument("--warmup", type=int, default=10, help="steps before")
    parser.add_argument("--mode", choices=("plain", "graph", "compile"), default="plain")
    return parser.parse_args()


def main():
    a = parse()
    gpu = a.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = a.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    device = torch.device(a.device)
    model = ResNet18(a.stem).to(device, memory_format=torch.channels_last)
    images = torch.randn(a.batch_size, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (a.batch_size,), device=device)
    options = {"fused": True} if gpu else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4, **options)
    forward = torch.compile(model) if a.mode == "compile" else model

    def step():
        # A graph replays into the same gradients; otherwise none at all is PyTorch's faster way.
        optimizer.zero_grad(set_to_none=a.mode != "graph")
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.precision == "bf16"):
            loss = functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()

    def wait():
        if gpu:
            torch.cuda.synchronize()

    run = step
    if a.mode == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    run()
    wait()
    first = time.monotonic() - START
    for _ in range(a.warmup):
        run()
    wait()
    begin = time.perf_counter()
    for _ in range(a.steps):
        run()
    wait()
    milliseconds = 1e3 * (time.perf_counter() - begin) / a.steps
    print(json.dumps({"torch": torch.__version__, "mode": a.mode, "images_per_s": 1e3 * a.batch_size / milliseconds,
                      "step_ms": milliseconds, "first_step_s": first,
                      "peak_device_mib": torch.cuda.max_memory_allocated() / 2**20 if gpu else None}), flush=True)


if __name__ == "__main__":
    main()
