# SPDX-License-Identifier: MIT
# tests/apps/report_test.py - bin/report, and its page in a real browser: it draws, says nothing on the console, asks
# the network for nothing, can be used by keys, and opens at once. Pictures are kept in build/artefacts/report. Read
# first: program.py, browser.py, sample_runs.py.
import fcntl
import json
import os
import re
import unittest

import browser
import sample_runs
from program import ProgramTest, main, settings

OPENS_WITHIN = 10  # Seconds, on a machine that does other things meanwhile; it takes under two where it is alone.


class Program(ProgramTest):
    def report(self, *arguments):
        return self.run_program(*arguments, program="report")

    def test_makes_the_page_and_its_pictures_beside_the_files(self):
        sample_runs.write_run(self.folder / "run", steps=30)
        run = self.report(self.folder / "run")
        self.assertEqual((run.code, run.err), (0, ""), run)
        self.assertEqual(run.out, f"{self.folder / 'run' / 'report.html'}\n")
        for name in ("report.html", "timeline.svg", "step_time.svg"):
            self.assertTrue((self.folder / "run" / name).is_file(), name)
        self.assertEqual([p.name for p in self.folder.rglob("*.part")], [])

    def test_what_cannot_be_written_leaves_nothing_and_a_device_stays_one(self):
        sample_runs.write_run(self.folder / "run", steps=3)
        (self.folder / "taken").mkdir()
        run = self.report(self.folder / "run", "--out", self.folder / "taken")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, r"^error: report: cannot write .*taken; Is a directory\n$")
        os.mkfifo(self.folder / "pipe")
        reader = os.open(self.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)  # The whole page, unread.
        run = self.report(self.folder / "run", "--out", self.folder / "pipe")
        self.assertEqual(run.code, 0, run)
        self.assertTrue((self.folder / "pipe").is_fifo())
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["pipe", "run", "taken"])

    def test_refuses_what_is_no_run_in_one_line(self):
        for arguments, pattern, code in (((self.folder,), r"error: report: .*has no config\.json", 1),
                                         ((self.folder / "no",), r"error: report: .*must be a directory", 1),
                                         ((), r"RUN_DIR is required", 2)):
            run = self.report(*arguments)
            self.assertEqual(run.code, code, run)
            self.assertRegex(run.out + run.err, pattern)
        sample_runs.write_run(self.folder / "run", steps=3)
        with open(self.folder / "run" / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write("{}}\n")
        run = self.report(self.folder / "run")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, r"^error: report: .*metrics\.jsonl:5: must be a JSON object; got \"\{\}\}\"\n$")

    def test_a_page_of_a_real_run_agrees_with_its_metrics(self):
        run = self.train("--steps=12", ranks=2)
        self.assertEqual(self.report(run.folder).code, 0)
        html = (run.folder / "report.html").read_text(encoding="utf-8")
        data = json.loads(re.search(r'(?s)id="data">(.*?)</script>', html)[1])
        self.assertEqual(data["steps"]["step"], [r["step"] for r in run.steps])
        self.assertEqual(data["steps"]["loss"], [round(loss, 6) for loss in run.losses])
        self.assertEqual(data["steps"]["exposed_ms"], [r["exposed_ms"] for r in run.steps])
        self.assertEqual([e["accuracy"] for e in data["evaluations"]], [e["test_accuracy"] for e in run.evaluations])
        self.assertTrue(data["advice"])


@unittest.skipUnless(browser.find(), "no Chromium on this machine: the page was not opened (apt-get install chromium)")
class Page(ProgramTest):
    def setUp(self):
        super().setUp()
        self.pictures = settings.bin.parent / "artefacts" / "report"
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.browser = browser.Browser(browser.find())
        self.addCleanup(self.browser.close)

    def page(self, *folders, name="run"):
        file = self.folder / f"{name}.html"
        run = self.run_program(*folders, "--out", file, program="report")
        self.assertEqual((run.code, run.err), (0, ""), run)
        return file

    def looks(self, file, name):
        """Opens the page in light, dark, and on a phone; keeps pictures; returns the seconds of the slowest."""
        slowest = 0
        desk, phone = {"width": 1280, "height": 900}, {"width": 390, "height": 844, "phone": True, "scale": 2}
        for kind, screen in {"light": desk, "dark": {**desk, "dark": True},
                             "phone": phone, "phone-dark": {**phone, "dark": True}}.items():
            self.browser.screen(**screen)
            slowest = max(slowest, self.browser.open(file))
            self.browser.picture(self.pictures / f"{name}-{kind}.png")
            self.assertEqual(self.browser.complaints, [])
            overflow = self.browser.run("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(overflow, 0, f"{kind}: the page is wider than the screen")
        self.assertEqual([url for url in self.browser.requests if not url.startswith(("file:", "data:"))], [])
        return slowest

    def text(self, selector):
        return self.browser.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def test_a_run_shows_its_numbers_and_its_timeline(self):
        times = sorted(sample_runs.write_run(self.folder / "run")[5:])
        self.looks(self.page(self.folder / "run"), "run")
        self.assertRegex(self.text("#advice"), r"^Bucket 5 \(.*\) is \d+\.\d\sms exposed")
        self.assertIn(f"Step{times[round(0.5 * (len(times) - 1))]:.0f}ms", self.text("#figures"))
        self.assertEqual(self.browser.run("document.querySelectorAll('#bucket-table tbody tr').length"), 6)
        self.assertEqual(self.browser.run("document.querySelectorAll('#steps figure svg').length"), 6)
        self.assertIn("the plan of the first steps, kept", self.text("#steps .changes"))
        # The spans of 4 ranks are in the canvas, and it is painted: more than paper and ink.
        self.assertEqual(int(self.browser.run("document.getElementById('timeline').dataset.spans")),
                         4 * (1 + 2 * len(sample_runs.LAYERS) + 2 + 1 + 6))
        colours = self.browser.run("""(() => {
          const c = document.getElementById('timeline');
          const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
          const seen = new Set();
          for (let i = 0; i < p.length; i += 4) seen.add(p[i] << 16 | p[i + 1] << 8 | p[i + 2]);
          return seen.size; })()""")
        self.assertGreater(colours, 12)

    def test_the_timeline_obeys_keys_and_pointer(self):
        sample_runs.write_run(self.folder / "run", steps=40)
        self.browser.screen(1280, 900)
        self.browser.open(self.page(self.folder / "run"))
        whole = self.browser.run("document.getElementById('timeline').toDataURL()")
        self.browser.run("document.getElementById('timeline').focus()")
        self.browser.key("+", times=3)
        self.browser.run("new Promise((done) => setTimeout(done, 100))")
        self.assertNotEqual(self.browser.run("document.getElementById('timeline').toDataURL()"), whole)
        self.browser.key("0")
        self.browser.key("]")
        self.assertRegex(self.text("#timeline-readout"), r"^Bucket 0.*, rank 0, size .*launched .*exposed")
        box = self.browser.run("document.getElementById('timeline').getBoundingClientRect().toJSON()")
        self.browser.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
        self.assertRegex(self.text("#tip"), r"Takes.*ms")
        # A key on a curve reads a value.
        self.browser.run("document.querySelector('#steps figure').focus()")
        self.browser.key("ArrowRight")
        self.assertRegex(self.text("#steps figure figcaption"), r"^step 1: \d+")
        self.assertEqual(self.browser.complaints, [])

    def test_a_step_plays(self):
        sample_runs.write_run(self.folder / "run", steps=40)
        self.browser.screen(1280, 900)
        self.browser.open(self.page(self.folder / "run"))
        slide = """(() => {
          const slider = document.querySelector('input[type=range]');
          slider.value = %d;
          slider.dispatchEvent(new Event('input')); })()"""
        self.browser.run(slide % 0)
        self.assertEqual(self.text("#buckets-now li:first-child .name span:last-child"), "empty")
        self.browser.run(slide % 600)
        self.assertRegex(self.text("#buckets-now"), r"\d+ of \d+ ready")
        self.browser.run("document.querySelector('#step').scrollIntoView()")
        self.browser.picture(self.pictures / "run-playing.png", whole=False)
        self.browser.run(slide % 1000)
        self.assertEqual(self.text("#buckets-now li:last-child .name span:last-child"), "used by the optimizer")
        self.browser.run("document.querySelector('button.play').click()")
        self.browser.run("new Promise((done) => setTimeout(done, 300))")
        self.assertEqual(self.text("button.play"), "Pause")
        self.assertNotEqual(self.browser.run("document.querySelector('input[type=range]').value"), "1000")
        self.assertEqual(self.browser.complaints, [])

    def test_strategies_stand_side_by_side(self):
        sample_runs.write_comparison(self.folder / "run")
        self.looks(self.page(self.folder / "run", name="strategies"), "strategies")
        rows = "[...document.querySelectorAll('#strategy-table tbody tr')]"
        names = self.browser.run(f"{rows}.map((row) => row.cells[0].textContent)")
        self.assertEqual(sorted(names), ["bucketed", "flat", "naive", "per_parameter"])
        self.assertEqual(names[-1], "bucketed")
        self.assertEqual(self.browser.run("document.querySelectorAll('#strategies canvas').length"), 4)

    def test_two_runs_are_compared(self):
        sample_runs.write_run(self.folder / "a", steps=100)
        sample_runs.write_run(self.folder / "b", steps=100, buckets=3, lr=0.1, seed=2)
        self.looks(self.page(self.folder / "a", self.folder / "b", name="comparison"), "comparison")
        self.assertRegex(self.text("#difference-table"), r"lr0\.050\.1")
        self.assertRegex(self.text("#comparison-table"), r"Exposed.*ms.*%")

    def test_sixty_four_ranks_with_sixty_buckets_open_and_zoom(self):
        layers = [f"block{i}.conv" for i in range(60)]
        real = sample_runs.layer_bytes
        self.addCleanup(setattr, sample_runs, "layer_bytes", real)
        sample_runs.layer_bytes = lambda name: 2**19
        sample_runs.write_run(self.folder / "run", ranks=64, steps=60, buckets=60, layers=layers, wire_us_per_mib=5000)
        seconds = self.looks(self.page(self.folder / "run", name="large"), "large")
        self.assertLess(seconds, OPENS_WITHIN)
        self.browser.screen(1280, 900)
        self.browser.open(self.folder / "large.html")
        frame = self.browser.run("""(async () => {
          const canvas = document.getElementById('timeline'), begin = performance.now();
          canvas.focus();
          for (let i = 0; i < 10; ++i) {
            canvas.dispatchEvent(new KeyboardEvent('keydown', {key: i < 5 ? '+' : '-', bubbles: true}));
            await new Promise(requestAnimationFrame);
          }
          return (performance.now() - begin) / 10; })()""")
        print(f"64 ranks x 60 buckets: open after {seconds:.2f} s, {frame:.0f} ms a frame of zooming")
        self.assertLess(frame, 1000)

    def test_a_killed_run_says_what_is_missing(self):
        sample_runs.write_run(self.folder / "run", steps=30)
        (self.folder / "run" / "trace.json.gz").unlink()
        with open(self.folder / "run" / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 31, "lo')
        self.looks(self.page(self.folder / "run", name="killed"), "killed")
        self.assertRegex(self.text("#notes"), r"metrics\.jsonl:37 ends in the middle.*no trace\.json\.gz")
        self.assertRegex(self.text("#step"), r"no timeline")
        for name in ("metrics.jsonl", "buckets.csv", "bucket_plan.json"):
            (self.folder / "run" / name).unlink()
        self.browser.open(self.page(self.folder / "run", name="empty"))
        self.assertEqual(self.browser.complaints, [])
        self.assertIn("No step has ended", self.text("#advice"))


if __name__ == "__main__":
    main()
