# SPDX-License-Identifier: MIT
# apps/bench/peers/torch_train.py - bench_train in PyTorch: the same training step on one process, or with --ranks as
# DistributedDataParallel over gloo, steps with and without synchronisation in turn. Prints one JSON object.
import argparse
import contextlib
import json
import os
import resource
import statistics
import time

START = time.monotonic()

import torch  # noqa: E402 - the import belongs to the time until the first step.
from torch import distributed, multiprocessing  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from resnet import ResNet18  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(description="Times training steps of ResNet-18 in PyTorch, at its best settings.")
    parser.add_argument("--stem", choices=("cifar", "imagenet"), default="cifar")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--batch-size", type=int, default=32, help="images a rank")
    parser.add_argument("--threads", type=int, default=1, help="a rank")
    parser.add_argument("--ranks", type=int, default=1, help="processes")
    parser.add_argument("--steps", type=int, default=10, help="measured")
    parser.add_argument("--warmup", type=int, default=1, help="steps before")
    parser.add_argument("--contiguous", action="store_true", help="NCHW memory; channels_last is as fast or faster")
    parser.add_argument("--port", type=int, default=29517)
    return parser.parse_args()


def spread(values):
    ordered = sorted(values)
    at = lambda q: ordered[int(q * (len(ordered) - 1) + 0.5)]
    return {"p5": at(0.05), "p50": at(0.5), "p95": at(0.95)}


def work(rank, a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(rank)
    images, labels = torch.randn(a.batch_size, 3, 32, 32), torch.randint(0, 10, (a.batch_size,))
    torch.manual_seed(0)
    model = ResNet18(a.stem)
    if not a.contiguous:
        model, images = model.to(memory_format=torch.channels_last), images.contiguous(
            memory_format=torch.channels_last)
    together = a.ranks > 1
    if together:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(a.port))
        distributed.init_process_group("gloo", rank=rank, world_size=a.ranks)
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)

    def step(synchronise):
        if together:
            distributed.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=not together)
        with contextlib.nullcontext() if synchronise or not together else model.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.precision == "bf16"):
                loss = functional.cross_entropy(model(images), labels)
            loss.backward()
        optimizer.step()
        if together:
            distributed.barrier()
        return 1e3 * (time.perf_counter() - begin)

    times, costs, first = [], [], None
    for number in range(a.warmup + a.steps):
        with_it = step(True)
        first = first or time.monotonic() - START
        without = step(False) if together else with_it
        if number >= a.warmup:
            times.append(with_it)
            costs.append(with_it - without)
    if rank == 0:
        result = {"torch": torch.__version__, "images_per_s": 1e3 * a.ranks * a.batch_size / statistics.median(times),
                  "step_ms": spread(times), "first_step_s": first,
                  "peak_resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
        if together:
            result["synchronisation_ms"] = spread(costs)
        print(json.dumps(result), flush=True)
    if together:
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    arguments = parse()
    if arguments.ranks > 1:
        multiprocessing.spawn(work, args=(arguments,), nprocs=arguments.ranks)
    else:
        work(0, arguments)
