# SPDX-License-Identifier: MIT
# tests/apps/whatif_test.py - predictions worked out by hand, and from runs that the trainer recorded. How fast anything
# is, is not asserted here: predictions against measured times are tests/dist/what_if_measured_test.cpp.
import json
import unittest
import xml.etree.ElementTree

from program import ProgramTest, main

MB = 1_000_000


def profile(**changes):
    """A run of one rank: 20 ms forward, 40 ms backward with a gradient of 1 MB every 10 ms, 5 ms of optimizer."""
    names = [f"p{i}" for i in range(4)]
    return {"model": "by_hand", "strategy": "bucketed", "plan": "auto", "ranks": 1, "threads": 1, "cores": 2,
            "host_ranks": 1, "images": 16, "algorithm": "auto", "link": None, "trailing_bytes": 0, "steps": 10,
            "step_s": 0.065, "communication_s": 0, "exposed_s": 0, "before_s": 0.020, "backward_s": 0.040,
            "after_s": 0.005, "spread": 0, "gap_s": 0, "collectives": [],
            "parameters": [{"name": name, "bytes": MB, "dtype": "f32", "dims": 2, "ready_s": 0.040 - 0.010 * i}
                           for i, name in enumerate(names)],
            "bucket_plan": {"rule": "by hand",
                            "buckets": [{"bytes": 4 * MB, "dtype": "f32", "parameters": names[::-1]}]},
            **changes}


class WhatIfTest(ProgramTest):
    def record(self, name, **changes):
        folder = self.folder / name
        folder.mkdir()
        (folder / "profile.json").write_text(json.dumps(profile(**changes)), encoding="utf-8")
        return folder

    def ask(self, *arguments):
        """The JSON of a run that must succeed, and nothing else on standard output."""
        run = self.run_program(*arguments, "--json=-", program="whatif")
        self.assertEqual((run.code, run.err), (0, ""), run)
        return json.loads(run.out)


class ByHand(WhatIfTest):
    # 800 Mbit/s are 100 MB/s: with two ranks a parameter travels 10 ms.
    NET = "--net=800mbit"

    def steps(self, *arguments):
        return [round(row["step_ms"], 3) for row in self.ask(*arguments)["rows"]]

    def test_strategies_follow_their_schedules(self):
        record = self.record("run")
        report = self.ask(record, "--ranks=2", self.NET, "--strategy=naive,flat,per_parameter,bucketed",
                          "--plan=recorded,size:2,auto")
        self.assertEqual([row["strategy"] for row in report["rows"]],
                         ["naive", "flat", "per_parameter", "bucketed", "bucketed", "bucketed"])
        # After backward 60 + 40 + 5; one bucket likewise; during backward the last gradient is ready at 60.
        self.assertEqual([round(row["step_ms"], 3) for row in report["rows"]], [105, 105, 75, 105, 85, 75])
        self.assertEqual([row["buckets"] for row in report["rows"]], [4, 1, 4, 1, 3, 4])
        self.assertEqual([round(row["exposed_ms"], 3) for row in report["rows"]], [40, 40, 10, 40, 20, 10])
        for row in report["rows"]:
            self.assertAlmostEqual(row["efficiency"], 65 / row["step_ms"])
            self.assertAlmostEqual(row["images_per_s"], 2 * 16e3 / row["step_ms"])
        self.assertEqual(len(report["assumptions"]), 4)

    def test_ranks_networks_algorithms_and_batches(self):
        record = self.record("run")
        flat = ("--strategy=flat", record)
        self.assertEqual(self.steps(*flat, "--ranks=1,2,4,4096", self.NET), [65, 105, 125, 144.98])
        several = ("--net", "800mbit", "--net", "1600mbit", "--net", "800mbit,1ms")
        self.assertEqual(self.steps(*flat, "--ranks=4", *several), [125, 95, 131])
        self.assertEqual(self.steps(*flat, "--ranks=4", "--net=800mbit,1ms", "--algorithm=tree"), [65 + 4 + 160])
        self.assertEqual(self.steps(*flat, "--ranks=8", self.NET, "--in-host=4:8gbit"), [65 + 1.5 * 4 + 40])
        self.assertEqual(self.steps(*flat, "--ranks=2", self.NET, "--batch-size=16,32,8"), [105, 165, 75])
        self.assertEqual(self.steps(*flat, "--ranks=2", self.NET, "--overhead=1000"), [106])
        self.assertEqual(self.steps(*flat, "--ranks=4", self.NET, "--cores=2"), [2 * 65 + 60])
        late = self.steps(*flat, "--ranks=2,4", self.NET, "--spread=10")
        self.assertTrue(105 < late[0] < 110 and 125 + late[0] - 105 < late[1] < 140, late)

    def test_the_recorded_network_is_the_default(self):
        record = self.record("run", ranks=2, link={"latency_s": 0, "bytes_per_s": 1e8})
        self.assertEqual(self.steps(record, "--ranks=2,4", "--strategy=flat"), [105, 125])

    def test_a_table_for_people_and_a_picture(self):
        record, svg, file = self.record("run"), self.folder / "efficiency.svg", self.folder / "figures.json"
        run = self.run_program(record, "--net=1gbit,50us", "--strategy=naive,bucketed", f"--svg={svg}",
                               f"--json={file}", program="whatif")
        self.assertEqual((run.code, run.err), (0, ""), run)
        self.assertRegex(run.out, r"record .*run: by_hand, 1 rank x 1 thread, bucketed auto, 16 images a rank")
        self.assertIn("assumed    every rank computes as the recorded one", run.out)
        self.assertIn("naive, batch 16 a rank, 1gbit,50us, ring", run.out)
        self.assertIn("bucketed, plan auto, batch 16 a rank, 1gbit,50us, ring", run.out)
        self.assertRegex(run.out, r"(?m)^ +64 .* %$")
        self.assertEqual(len(json.loads(file.read_text(encoding="utf-8"))["rows"]), 2 * 7)
        picture = xml.etree.ElementTree.parse(svg).getroot()
        space = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(picture.findall(f"{space}polyline")), 2)
        self.assertEqual(len(picture.findall(f"{space}circle")), 2 * 7)

    def test_it_tells_its_own_error(self):
        record = self.record("one")
        link = {"latency_s": 0, "bytes_per_s": 1e8}
        two = self.record("two", ranks=2, strategy="flat", link=link, step_s=0.100, exposed_s=0.035)
        four = self.record("four", ranks=4, strategy="flat", link=link, step_s=0.130, exposed_s=0.060)
        report = self.ask(record, "--ranks=1", "--check", two, four)["check"]
        self.assertEqual([round(row["predicted_ms"], 3) for row in report["rows"]], [105, 125])
        self.assertEqual([round(row["error"], 5) for row in report["rows"]], [0.05, round(125 / 130 - 1, 5)])
        self.assertAlmostEqual(report["largest_error"], 0.05)
        self.assertIs(report["same_order"], True)
        run = self.run_program(record, "--ranks=1", "--check", two, four, program="whatif")
        self.assertIn("largest error 5.0 %", run.out)
        self.assertIn("fastest first, predicted: the same", run.out)
        # On the wrong side of each other.
        slow = self.record("slow", ranks=2, strategy="flat", link=link, step_s=0.140)
        self.assertIs(self.ask(record, "--ranks=1", "--check", slow, four)["check"]["same_order"], False)

    def test_ranks_that_shared_cores_are_said_and_scaled(self):
        record = self.record("run", ranks=4, host_ranks=4, link={"latency_s": 0, "bytes_per_s": 1e8})
        run = self.run_program(record, "--ranks=4", program="whatif")
        self.assertIn("the recorded ranks had 2.0 threads a core", run.out)
        self.assertEqual(self.steps(record, "--ranks=4", "--strategy=flat"), [125])
        self.assertEqual(self.steps(record, "--ranks=4", "--strategy=flat", "--cores=4"), [32.5 + 60])

    def test_what_cannot_be_asked_is_refused(self):
        record, empty = self.record("run"), self.folder / "empty"
        empty.mkdir()
        other = self.record("other", threads=2)
        real = self.record("real", ranks=2)
        for code, pattern, arguments in (
                (2, "RUN_DIR is required", ()),
                (2, "--net: is needed; the recorded run had one rank", (record, "--ranks=2")),
                (2, "--net: needs a positive number", (record, "--net=fast")),
                (2, "--in-host: needs RANKS:LINK", (record, "--net=1gbit", "--in-host=1gbit")),
                (2, "--plan: must be auto, recorded", (record, "--net=1gbit", "--plan=best")),
                (2, "--plan: must be a positive number of MiB", (record, "--net=1gbit", "--plan=size:-1")),
                (2, "--plan: needs --strategy bucketed; flat has",
                 (record, "--net=1gbit", "--strategy=flat,naive", "--plan=size:1")),
                (2, "ring,tree|ring, tree", (record, "--net=1gbit", "--algorithm=butterfly")),
                (2, "naive,flat|naive, flat", (record, "--net=1gbit", "--strategy=all")),
                (1, "profile.json is not there; give the directory of a run that ended", (empty, "--net=1gbit")),
                (1, "the run has 2 compute threads a rank, the record 1", (record, "--ranks=1", "--check", other)),
                (1, "real network, which the record has not seen", (record, "--ranks=1", "--check", real))):
            with self.subTest(arguments=arguments):
                run = self.run_program(*arguments, program="whatif")
                self.assertEqual(run.code, code, run)
                self.assertRegex(run.err, pattern)


class Recorded(WhatIfTest):
    def test_one_rank_tells_what_many_would_do(self):
        run = self.train("--steps=12", "--limit-test=10")
        report = self.ask(run.folder, "--ranks=1,2,16,1024", "--net", "1gbit,50us", "--net", "100mbit,50us",
                          "--spread=0")
        self.assertEqual(report["record"]["ranks"], 1)
        self.assertEqual(report["record"]["images"], 8)
        fast, slow = report["rows"][:4], report["rows"][4:]
        self.assertAlmostEqual(fast[0]["efficiency"], 1)
        for rows in (fast, slow):
            steps = [row["step_ms"] for row in rows]
            self.assertEqual(steps, sorted(steps), "more ranks are not faster")
        for a, b in zip(fast, slow):
            self.assertLessEqual(a["step_ms"], b["step_ms"], "a slower network is not faster")

    def test_a_measured_run_is_held_against_its_prediction(self):
        one = self.train("--steps=12")
        two = self.train("--steps=12", "--net=1gbit,50us", "--sync=flat", ranks=2)
        check = self.ask(one.folder, "--ranks=1", "--check", two.folder)["check"]
        [row] = check["rows"]
        self.assertEqual((row["ranks"], row["strategy"]), (2, "flat"))
        self.assertAlmostEqual(row["error"], row["predicted_ms"] / row["step_ms"] - 1)
        # Two ranks, everything in one piece: 32 ms for about 4 MB, and nothing of it is hidden.
        self.assertGreater(row["predicted_exposed_ms"], 20)
        self.assertGreater(row["exposed_ms"], 20)


if __name__ == "__main__":
    main()
