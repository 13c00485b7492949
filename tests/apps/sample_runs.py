# SPDX-License-Identifier: MIT
# tests/apps/sample_runs.py - run directories as train_resnet18 --out leaves them, of any size and made in no time: a
# small model of steps in which backward fills buckets and one wire carries them. The page says of what it shows that it
# is such a sample ("data": "modelled sample, not measured").
import gzip
import json
import random

LAYERS = ["conv1", "bn1"] + [f"layer{i}.{j}.{part}" for i in (1, 2, 3, 4) for j in (0, 1)
                             for part in ("conv1", "bn1", "conv2", "bn2")] + ["fc"]
HEADER = ("step,plan_epoch,bucket,bytes,parameters,first_ready_us,last_ready_us,launch_us,start_us,end_us,waited_us,"
          "exposed_us,last_rank,lag_us\n")


def layer_bytes(name):
    if name == "conv1":
        return 6912
    if name == "fc":
        return 20520
    width = 32 * 2 ** int(name[5]) if name.startswith("layer") else 64
    return 8 * width if "bn" in name else 36 * width * width


def cut(layers, count, sync):
    """`layers` in the order of backward, in `count` buckets of about the same size; one for strategies without cuts."""
    if sync in ("naive", "per_parameter"):
        return [[layer] for layer in layers]
    if sync == "flat":
        return [list(layers)]
    total = sum(map(layer_bytes, layers))
    buckets, size = [[]], 0
    for i, layer in enumerate(layers):
        full = size >= total * len(buckets) / count
        if buckets[-1] and (full or len(layers) - i <= count - len(buckets)) and len(buckets) < count:
            buckets.append([])
        buckets[-1].append(layer)
        size += layer_bytes(layer)
    return buckets


def one_step(noise, layers, buckets, sync, wire_us_per_mib):
    """Spans (name, kind, begin, length) and buckets (first ready, last ready, launch, start, end) in microseconds."""
    spans, t = [("data", "data", 0, 900)], 900
    begin = t
    for layer in layers:
        length = noise() * (350 if ".bn" in layer or layer == "bn1" else 1500)
        spans.append((layer, "forward", t, length))
        t += length
    spans.append(("forward", "forward", begin, t - begin))
    begin, ready = t, {}
    for layer in reversed(layers):
        length = noise() * (600 if ".bn" in layer or layer == "bn1" else 3000)
        spans.append((layer, "backward", t, length))
        t += length
        ready[layer] = t
    spans.append(("backward", "backward", begin, t - begin))
    backward_end, wire, lives = t, 0, []
    for bucket in buckets:
        first, last = ready[bucket[0]], ready[bucket[-1]]
        launch = last if sync == "bucketed" or sync == "per_parameter" else backward_end
        start = max(launch + 15, wire)
        wire = start + noise() * (1200 + wire_us_per_mib * sum(map(layer_bytes, bucket)) / 2**20)
        lives.append((first, last, launch, start, wire))
    t = max(t, wire) + 20
    length = noise() * 1200
    spans.append(("sgd", "optimizer", t, length))
    return spans, lives, backward_end, t + length


def write_run(folder, ranks=4, steps=300, sync="bucketed", buckets=6, layers=None, wire_us_per_mib=1100, seed=1,
              lr=0.05, trace_steps=5, straggler=None, facts=None):
    """Fills `folder` and returns the milliseconds of its steps."""
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    layers = layers or LAYERS
    plan = cut(list(reversed(layers)), buckets, sync)
    sizes = [sum(map(layer_bytes, bucket)) for bucket in plan]
    run = {"ranks": ranks, "backend": "threads", "threads": 1, "data": "modelled sample, not measured",
           "parameters": sum(sizes) // 4, "steps": steps, "global_batch": 32 * ranks, **(facts or {})}
    config = {"model": "resnet18", "precision": "f32", "sync": sync, "lr": lr, "comm_hook": "none", "net": "",
              "run": run}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    entries = [{"bytes": size, "dtype": "f32", "parameters": [f"{layer}.weight" for layer in bucket]}
               for size, bucket in zip(sizes, plan)]
    (folder / "bucket_plan.json").write_text(json.dumps({"rule": f"modelled, {len(plan)} buckets", "buckets": entries}))
    metrics, csv, events, times, origin = [], [HEADER], [], [], 1e6
    for step in range(1, steps + 1):
        slow = 1.6 if step <= 3 else rng.choice((1.25,) + 19 * (1,))
        worlds = []
        for rank in range(ranks if step in range(10, 10 + trace_steps) else 1):
            pace = slow * (1.3 if rank == straggler else 1)
            worlds.append(one_step(lambda: pace * rng.gauss(1, 0.04), layers, plan, sync, wire_us_per_mib))
        spans, lives, backward_end, end = worlds[0]
        comm = sum(life[4] - life[3] for life in lives)
        hidden = sum(max(0, min(life[4], backward_end) - life[3]) for life in lives)
        step_ms = end / 1000
        times.append(step_ms)
        loss = 2.3 * 0.15 ** (step / steps) * rng.gauss(1, 0.03)
        last = rng.randrange(ranks) if straggler is None else straggler
        metrics.append({
            "step": step, "epoch": (step - 1) * 5 // steps, "loss": round(loss, 6), "lr": lr,
            "step_ms": round(step_ms, 3), "images_per_s": round(32000 * ranks / step_ms, 2),
            "comm_ms": round(comm / 1000, 3), "hidden_ms": round(hidden / 1000, 3),
            "exposed_ms": round((comm - hidden) / 1000, 3), "overlap_pct": round(100 * hidden / comm, 1),
            "t_s": round(sum(times) / 1000, 3), "plan_epoch": 0, "waited_ms": 0,
            "bus_gb_s": round(2 * (ranks - 1) / ranks * sum(sizes) / comm / 1000, 4),
            "straggler": last, "straggler_ms": 0.2})
        if step == 8:
            metrics.append({"event": "plan", "step": 8, "plan_epoch": 0, "buckets": len(plan),
                            "text": "plan auto: the plan of the first steps, kept"})
        if step * 5 % steps == 0:
            done = step / steps
            metrics.append({"event": "evaluation", "step": step, "epoch": round(done * 5) - 1,
                            "test_loss": round(2 - 1.4 * done, 4),
                            "test_accuracy": round(0.9 - 0.6 * (1 - done) ** 2, 4)})
        for b, (first, ready, launch, start, finish) in enumerate(lives):
            exposed = max(0, finish - max(start, backward_end))
            csv.append(f"{step},0,{b},{sizes[b]},{len(plan[b])},{first:.1f},{ready:.1f},{launch:.1f},{start:.1f},"
                       f"{finish:.1f},{exposed:.1f},{exposed:.1f},{last},200.0\n")
        for rank, (spans, lives, _, rank_end) in enumerate(worlds if len(worlds) == ranks else ()):
            events.append({"name": f"step {step}", "cat": "step", "ph": "X", "ts": origin, "dur": rank_end,
                           "pid": rank, "tid": 0, "args": {"step": step}})
            events += [{"name": name, "cat": kind, "ph": "X", "ts": round(origin + begin, 3),
                        "dur": round(length, 3), "pid": rank, "tid": 0} for name, kind, begin, length in spans]
            for b, (first, ready, launch, start, finish) in enumerate(lives):
                args = {"bucket": b, "bytes": sizes[b], "first_ready_us": origin + first,
                        "last_ready_us": origin + ready, "launch_us": origin + launch}
                events.append({"name": f"bucket {b}", "cat": "bucket", "ph": "X", "ts": origin + start,
                               "dur": finish - start, "pid": rank, "tid": 1, "args": args})
        origin += max(world[3] for world in worlds) + 500
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in metrics))
    (folder / "buckets.csv").write_text("".join(csv))
    (folder / "trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode(), 1))
    return times


def write_comparison(folder):
    """A run with four strategies, as a comparison leaves them."""
    for i, (sync, buckets) in enumerate((("naive", 1), ("per_parameter", 1), ("flat", 1), ("bucketed", 6))):
        write_run(folder / "strategies" / sync, sync=sync, buckets=buckets, steps=120, seed=i + 1,
                  facts={"equal_to_naive": True})
