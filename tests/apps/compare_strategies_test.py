# SPDX-License-Identifier: MIT
# tests/apps/compare_strategies_test.py - the comparison proves its strategies equal and leaves run directories that
# other programs read; which one is fastest is never asserted. Read first: program.py.
import json
import unittest

from program import ProgramTest, main, requires_mpi

NAMES = ["naive", "flat", "per_parameter", "bucketed_fixed", "bucketed_planned"]
FILES = ["config.json", "bucket_plan.json", "metrics.jsonl", "buckets.csv", "trace.json.gz", "profile.json"]


class CompareTest(ProgramTest):
    TINY = ("--model=mlp", "--batch-size=4", "--steps=6", "--warmup=4", "--net=1gbit,50us")

    def compare(self, *arguments, **how):
        folder, figures = self.folder / "compared", self.folder / "figures.json"
        run = self.run_program(*self.TINY, f"--out={folder}", f"--json={figures}", *arguments,
                               program="compare_strategies", **how)
        self.assertEqual((run.code, run.err), (0, ""), run)
        return run, folder, json.loads(figures.read_text(encoding="utf-8"))

    def check(self, run, folder, figures, ranks):
        self.assertEqual([row["strategy"] for row in figures["rows"]], NAMES)
        self.assertEqual(len({row["sha256"] for row in figures["rows"]}), 1, "bit for bit the same parameters")
        losses = []
        for name, row in zip(NAMES, figures["rows"]):
            self.assertRegex(run.out, rf"(?m)^{name} .* yes$")
            self.assertIs(row["equal_to_naive"], True)
            at = folder / "strategies" / name
            for file in FILES:
                self.assertTrue((at / file).is_file(), at / file)
            config = json.loads((at / "config.json").read_text(encoding="utf-8"))
            self.assertEqual(config["run"]["ranks"], ranks)
            self.assertIs(config["run"]["equal_to_naive"], True)
            lines = [json.loads(line) for line in (at / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            steps = [line for line in lines if "step_ms" in line]
            self.assertEqual([line["step"] for line in steps], list(range(1, 7)))
            losses.append([line["loss"] for line in steps])
            plan = json.loads((at / "bucket_plan.json").read_text(encoding="utf-8"))
            self.assertEqual(len(plan["buckets"]), row["buckets"])
        self.assertEqual(losses[1:], losses[:1] * 4, "the same data in the same steps")
        self.assertEqual([row["buckets"] for row in figures["rows"]][:3], [6, 1, 6])
        page = (folder / "report.html").read_text(encoding="utf-8")
        for name in NAMES:
            self.assertIn(name, page)
        self.assertRegex(run.out, r"fastest: \w+, \d+\.\d\d times as fast as naive")


class Comparison(CompareTest):
    def test_two_ranks_end_with_the_same_parameters(self):
        self.check(*self.compare(ranks=2), ranks=2)

    def test_so_do_three(self):
        self.check(*self.compare(ranks=3), ranks=3)

    def test_its_runs_are_records_for_whatif(self):
        _, folder, _ = self.compare(ranks=2)
        strategies = [folder / "strategies" / name for name in NAMES]
        run = self.run_program(strategies[0], "--ranks=2", "--json=-", "--check", *strategies, program="whatif")
        self.assertEqual((run.code, run.err), (0, ""), run)
        rows = json.loads(run.out)["check"]["rows"]
        self.assertEqual([row["strategy"] for row in rows], NAMES[:3] + ["bucketed"] * 2)

    def test_an_earlier_comparison_is_kept_unless_told(self):
        self.compare(ranks=2)
        again = (*self.TINY, f"--out={self.folder / 'compared'}")
        run = self.run_program(*again, program="compare_strategies", ranks=2)
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, "--overwrite")
        run = self.run_program(*again, "--overwrite", program="compare_strategies", ranks=2)
        self.assertEqual(run.code, 0, run)

    def test_flags_out_of_range_are_usage_errors(self):
        for arguments, pattern in ((("--steps=1",), "--steps"), (("--model=vgg",), "--model"),
                                   (("--bucket-mb=0",), "--bucket-mb"), (("--precision=f8",), "--precision")):
            run = self.run_program(*arguments, program="compare_strategies")
            self.assertEqual(run.code, 2, run)
            self.assertRegex(run.err + run.out, pattern)


@requires_mpi
class UnderMpi(CompareTest):
    def test_three_processes_end_with_the_same_parameters(self):
        self.check(*self.compare(mpi=3), ranks=3)


if __name__ == "__main__":
    main()
