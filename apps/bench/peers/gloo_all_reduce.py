# SPDX-License-Identifier: MIT
# apps/bench/peers/gloo_all_reduce.py - PyTorch's all-reduce over gloo between processes of this machine, by size.
# Prints one JSON object: {"us": {bytes: median microseconds}}.
import argparse
import json
import os
import statistics
import time

import torch
from torch import distributed, multiprocessing


def work(rank, a):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(a.port))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=a.ranks)
    out = {}
    for size in a.sizes:
        numbers = torch.zeros(size // 4)
        times = []
        for number in range(-a.warmup, a.iterations):
            begin = time.perf_counter()
            distributed.all_reduce(numbers)
            if number >= 0:
                times.append(1e6 * (time.perf_counter() - begin))
        out[size] = statistics.median(times)
        distributed.barrier()
    if rank == 0:
        print(json.dumps({"us": out}), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Times all-reduce of f32 over gloo.")
    parser.add_argument("--ranks", type=int, default=2, help="processes")
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1 << n for n in range(10, 27, 2)], help="bytes, comma-separated")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--port", type=int, default=29519)
    arguments = parser.parse_args()
    multiprocessing.spawn(work, args=(arguments,), nprocs=arguments.ranks)
