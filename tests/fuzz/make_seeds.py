#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# tests/fuzz/make_seeds.py - writes the valid inputs that fuzzing starts from, seed-* in corpus/TARGET. Run it again
# when a format changes; inputs that were found (found-*) stay.
import gzip
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def seed(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(content if isinstance(content, bytes) else content.encode())


def safetensors(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


seed("safetensors", "empty", safetensors({}))
seed("safetensors", "two", safetensors({"__metadata__": {"epoch": "3"}, "conv1.weight": tensor("F32", [2, 1], 0, 8),
                                        "bn1.num_batches_tracked": tensor("I64", [], 8, 16)}, bytes(16)))
seed("safetensors", "dtypes", safetensors({"a": tensor("BOOL", [3], 0, 3), "b": tensor("BF16", [1, 0], 3, 3),
                                           "\u00e9\n": tensor("U8", [1, 1, 1, 1], 3, 4)}, b"\0\1\0\7"))

PARAMETERS = [{"name": "conv.weight", "bytes": 4096, "dtype": "f32", "dims": 4, "ready_s": 0.03},
              {"name": "fc.weight", "bytes": 256, "dtype": "f32", "dims": 2, "ready_s": 0.02},
              {"name": "fc.bias", "bytes": 40, "dtype": "bf16", "dims": 1, "ready_s": 0.01}]
PLAN = {"rule": "size cap 4 MiB", "buckets": [{"bytes": 40, "dtype": "bf16", "parameters": ["fc.bias"]},
                                              {"bytes": 4352, "dtype": "f32",
                                               "parameters": ["fc.weight", "conv.weight"]}]}
PARTS = {"rule": "parts", "buckets": [{"bytes": 40, "dtype": "bf16", "parameters": ["fc.bias"]},
                                      {"bytes": 256, "dtype": "f32", "parameters": ["fc.weight"]},
                                      {"bytes": 2048, "dtype": "f32", "parameters": ["conv.weight"],
                                       "elements": [0, 512]},
                                      {"bytes": 2048, "dtype": "f32", "parameters": ["conv.weight"],
                                       "elements": [512, 1024]}]}
seed("plan", "whole", json.dumps(PLAN))
seed("plan", "parts", json.dumps(PARTS))

MANIFEST = {"format": "brigade checkpoint 1", "step": 6, "world_size": 2, "optimizer_steps": 6, "score": 0.5,
            "generators": [[0, 6], [1, 18446744073709551615]], "run": {"sampler": {"step": 6}, "flags": {"lr": 0.01}},
            "bucket_plan": PLAN,
            "files": [{"name": f"rank_{r:04}.safetensors", "bytes": 16, "xxh3_128": "20e3ecbf30e42c5fb25df8cdce94a65a"}
                      for r in range(2)]}
seed("manifest", "two", json.dumps(MANIFEST))
seed("manifest", "plain", json.dumps({**MANIFEST, "world_size": 1, "score": None, "generators": [[7, 0]], "run": {},
                                      "bucket_plan": {}, "files": []}, indent=1))

PROFILE = {"model": "mlp", "strategy": "bucketed", "plan": "size", "ranks": 2, "threads": 1, "cores": 2,
           "host_ranks": 2, "images": 16, "algorithm": "ring", "link": None, "trailing_bytes": 8, "steps": 7,
           "step_s": 0.045,
           "communication_s": 0.0003, "exposed_s": 0.0002, "before_s": 0.01, "backward_s": 0.03, "after_s": 0.002,
           "spread": 0.015, "gap_s": 1e-05,
           "collectives": [{"bytes": 40, "seconds": 1e-4}, {"bytes": 4352, "seconds": 2e-4},
                           {"bytes": 128, "seconds": 1e-4}],
           "parameters": PARAMETERS, "bucket_plan": PLAN}
seed("profile", "measured", json.dumps(PROFILE))
LINK = {"latency_s": 5e-5, "bytes_per_s": 1.25e8}
seed("profile", "modelled", json.dumps(PROFILE | {"link": LINK, "plan": "auto"}))

STEP = {"epoch": 0, "loss": 2.5, "lr": 0.01, "step_ms": 100.0, "images_per_s": 640.0, "comm_ms": 35.0,
        "hidden_ms": 15.0, "exposed_ms": 20.0, "waited_ms": 1.0, "bus_gb_s": 0.5, "straggler": 1, "straggler_ms": 2.0}
lines = [json.dumps({"step": n} | STEP) for n in range(1, 13)]
lines.insert(3, json.dumps({"event": "plan", "step": 3, "plan_epoch": 1, "text": "two buckets"}))
lines.append(json.dumps({"event": "evaluation", "epoch": 0, "step": 12, "test_loss": 1.5, "test_accuracy": 0.5}))
seed("metrics", "run", "\n".join(lines) + "\n")
seed("metrics", "old", json.dumps({"step": 1} | STEP) + "\n" + json.dumps({"epoch": 0, "test_loss": None}) + "\n{\"st")

HEAD = ("step,plan_epoch,bucket,bytes,parameters,first_ready_us,last_ready_us,launch_us,start_us,end_us,waited_us,"
        "exposed_us,last_rank,lag_us\n")
seed("buckets", "two", HEAD + "".join(f"{s},0,{b},4096,2,10,20.5,21,22,{30 + b},0,1e1,{b},0.5\n"
                                      for s in (1, 2) for b in (0, 1)))
seed("buckets", "gaps", "# every step\n" + HEAD + "1,0,0,1,1,-1,0,0,0,0,0,0,,\n2,1,99999,1,1,0,0,0,0,0,0,0,-1,")


def event(name, category, rank, begin, length, **arguments):
    return {"name": name, "cat": category, "ph": "X", "ts": begin, "dur": length, "pid": rank, "tid": 0,
            "args": arguments}


EVENTS = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "rank 0"}}]
for rank in (0, 1):
    EVENTS += [event("step 12", "step", rank, 1000 + rank, 99, step=12),
               event("forward", "forward", rank, 1000 + rank, 30),
               event("conv1", "forward", rank, 1000 + rank, 10), event("backward", "backward", rank, 1040, 40.25),
               event("bucket 0", "bucket", rank, 1050, 20, bucket=0, bytes=4096, first_ready_us=1041,
                     last_ready_us=1049, launch_us=1050), event("step 13", "step", rank, 1200 + rank, 50)]
seed("trace", "plain", json.dumps({"traceEvents": EVENTS, "displayTimeUnit": "ms"}))
seed("trace", "list", json.dumps(EVENTS[:4]))
seed("trace", "packed", gzip.compress(json.dumps({"traceEvents": EVENTS}).encode(), mtime=0))

RECORD = bytes([19, 99]) + bytes(range(256)) * 12
seed("cifar", "one", RECORD)
seed("cifar", "two", RECORD + bytes(3074))

seed("config", "types", "# a run\nbatch-size = 64\nlr = 5e-2\nmodel = \"mlp\"\nnesterov = true\nbucket_mb = [1, 4]\n"
     "synthetic = 100\nout = 'runs/#1'\n")
seed("config", "strings", "plan = \"size\" # as always\nnet = \"1gbit,50us\"\nquiet = false\nsteps = 10\n")

seed("command_line", "rules", "--synthetic\n100\n--model\nmlp\n--batch-size=8\n--steps\n10\n--lr\n0.1\n--nesterov\n"
     "--seed=7")
seed("command_line", "ranks", "--ranks=4\n--backend=threads\n--sync\nbucketed\n--plan\nsize\n--bucket-mb=1,4\n"
     "--comm-hook\ntopk\n--algorithm\nring\n--trace-steps=1:3\n--out\nx")
seed("command_line", "network", "--net\n1gbit,50us\n--slow-rank\n1:0.5\n--ranks\n2\n--timeout=10\n--precision=bf16")
seed("command_line", "variables", "BRIGADE_BATCH_SIZE=8\nBRIGADE_LR=0.1\nBRIGADE_QUIET=1\n--verbose\n"
     "--print-config")
seed("command_line", "help", "--help")
seed("command_line", "completion", "--completion\nbash")
