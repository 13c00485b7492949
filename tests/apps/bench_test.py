# SPDX-License-Identifier: MIT
# tests/apps/bench_test.py - benchmarks say what they measured, on what, and add up; how fast anything is, is never
# asserted. Read first: program.py.
import json
import subprocess
import sys
import unittest

from program import ROOT, ProgramTest, environment, main, requires_mpi, settings

HEAD = ["machine", "date", "command", "rows"]
SPREAD = ["p5", "p50", "p95"]


class BenchTest(ProgramTest):
    def bench(self, program, *arguments, **how):
        """The report of a run that must succeed, from a file, and what it printed for people."""
        file = self.folder / f"{program}.json"
        run = self.run_program(*arguments, "--json", file, program=program, **how)
        self.assertEqual((run.code, run.err), (0, ""), run)
        report = json.loads(file.read_text(encoding="utf-8"))
        for key in HEAD:
            self.assertTrue(report[key], key)
            if key != "rows":
                self.assertIn(report[key], run.out)
        self.assertIn(program, report["command"])
        self.assertGreaterEqual(report["foreign_cores"], 0)
        self.assertRegex(run.out, r"others used \d+ % of a core")
        return report, run.out

    def ordered(self, spread):
        self.assertEqual(list(spread), SPREAD)
        self.assertLess(0, spread["p5"])
        self.assertEqual(list(spread.values()), sorted(spread.values()))


class Operations(BenchTest):
    def test_a_model_is_taken_apart(self):
        report, out = self.bench("bench_op", "--model=mlp", "--batch-size=4", "--min-ms=0", "--threads=1")
        names = {row["op"] for row in report["rows"]}
        self.assertLessEqual({"linear", "linear_grad_input", "linear_grad_weight", "cross_entropy",
                              "cross_entropy_grad", "sgd", "adamw", "matmul"}, names)
        # The linear layers end with the ReLUs: forward has none alone.
        self.assertNotIn("relu", names)
        self.assertRegex(out, "also called, not timed alone:.*relu_grad")
        for row in report["rows"]:
            self.ordered(row["ms"])
            self.assertGreater(row["rate"], 0)
            self.assertGreater(row["share_of_ceiling"], 0)
        linear = [row for row in report["rows"] if row["op"] == "linear"]
        self.assertEqual([row["shape"] for row in linear], ["4x3072 * 256x3072", "4x256 * 128x256", "4x128 * 10x128"])

    def test_shapes_can_be_typed(self):
        report, _ = self.bench("bench_op", "--op=conv2d", "--shape=2x16x8x8x32x3x2x1", "--min-ms=0", "--threads=1")
        self.assertEqual([row["op"] for row in report["rows"]], ["conv2d", "conv2d_grad_input", "conv2d_grad_weight"])
        self.assertEqual({row["shape"] for row in report["rows"]}, {"2x16x8x8 * 32x16x3x3, stride 2, padding 1"})
        for row in report["rows"]:
            flops = 2 * 2 * 32 * 4 * 4 * 16 * 3 * 3  # Each output is a sum over channels and kernel.
            self.assertAlmostEqual(row["rate"] * row["ms"]["p50"] * 1e6 / flops, 1, places=6)

    def test_mistakes_are_named(self):
        for arguments, pattern, code in ((("--op=cov2d",), "choose from conv2d, linear", 2),
                                         (("--op=conv2d", "--shape=1x2"), "conv2d needs N,C,H,W,O,KERNEL", 1),
                                         (("--op=relu", "--shape=1xtwo"), "whole numbers", 1),
                                         (("--shape=1x2",), "needs one --op", 1)):
            run = self.run_program(*arguments, program="bench_op")
            self.assertEqual(run.code, code, run)
            self.assertRegex(run.err, pattern)

    def test_json_on_standard_output_is_alone_there(self):
        run = self.run_program("--op=relu", "--shape=1x2x3x3", "--min-ms=0", "--json=-", program="bench_op")
        self.assertEqual(len(json.loads(run.out)["rows"]), 2, "nothing else is printed")


class Training(BenchTest):
    TINY = ("--steps=2", "--warmup=1", "--threads=1")

    def check_row(self, row, ranks, batch):
        self.ordered(row["step_ms"])
        self.assertAlmostEqual(row["images_per_s"] * row["step_ms"]["p50"], 1e3 * ranks * batch, delta=1e-3 * batch)
        for key in ("peak_resident_mib", "peak_tensors_mib", "first_step_begin_s"):
            self.assertGreater(row[key], 0)
        self.assertGreaterEqual(row["first_step_s"], row["first_step_begin_s"])
        self.assertGreaterEqual(row["bucket_bytes"], row["gradient_bytes"])
        self.assertLessEqual(row["gradients_and_buckets_of_gradients"], 1.05)
        self.assertEqual((row["ranks"], row["batch_size"]), (ranks, batch))

    def test_phases_of_a_step_add_up(self):
        report, out = self.bench("bench_train", "--stem=imagenet", "--batch-size=2", *self.TINY)
        [row] = report["rows"]
        self.check_row(row, 1, 2)
        total = sum(row["phases_ms"].values())
        self.assertAlmostEqual(total / row["step_ms"]["p50"], 1, delta=0.75, msg="means of steps against their median")
        self.assertGreater(row["operations_ms"]["conv2d"], 0)
        self.assertAlmostEqual(row["own_bound_ms"] + sum(row["separating_ms"].values()), total, delta=1e-6 * total)
        for whose, words in (("own", "by our own fastest"), ("library", "by the library's algorithms")):
            self.assertGreater(row[f"{whose}_bound_ms"], 0)
            self.assertLess(row[f"{whose}_bound_ms"], 1e9, "some algorithm fits every convolution")
            self.assertAlmostEqual(row[f"share_of_{whose}_bound"], row[f"{whose}_bound_ms"] / total, places=6)
            self.assertAlmostEqual(row[f"{whose}_bound_ms"] * row[f"{whose}_bound_images_per_s"], 2e3, places=3)
            self.assertRegex(out, f"convolutions alone {words}: .* of that bound")

    def test_every_batch_size_with_every_number_of_threads(self):
        report, _ = self.bench("bench_train", "--model=mlp", "--batch-size=2,3", "--threads=1,2", "--steps=2")
        self.assertEqual([(row["threads"], row["batch_size"]) for row in report["rows"]],
                         [(1, 2), (1, 3), (2, 2), (2, 3)])

    def test_ranks_tell_what_synchronisation_costs(self):
        report, out = self.bench("bench_train", "--model=mlp", "--batch-size=4", *self.TINY, ranks=2)
        self.check_row(report["rows"][0], 2, 4)
        self.assertEqual(list(report["rows"][0]["synchronisation_ms"]), SPREAD)
        self.assertIn("synchronisation costs", out)

    def test_data_loader_and_16_bits(self):
        report, _ = self.bench("bench_train", "--model=mlp", "--batch-size=4", "--loader", "--precision=bf16",
                               *self.TINY)
        self.assertGreater(report["rows"][0]["phases_ms"]["data"], 0)
        self.assertEqual(report["rows"][0]["precision"], "bf16")

    def test_inference_takes_the_batch_sizes_of_serving(self):
        report, _ = self.bench("bench_train", "--model=mlp", "--inference", "--steps=2", "--threads=1")
        self.assertEqual([row["batch_size"] for row in report["rows"]], [1, 2, 4, 8, 16, 32, 64])
        for row in report["rows"]:
            self.ordered(row["forward_ms"])

    def test_inference_in_every_precision(self):
        for precision in ("f32", "bf16", "int8"):
            arguments = ("--inference", "--steps=2", "--threads=1", "--stem=imagenet", "--batch-size=1,3",
                         f"--precision={precision}")
            with self.subTest(precision):
                if precision != "f32":
                    run = self.run_program(*arguments, program="bench_train")
                    if "this processor has no fast arithmetic on" in run.err:
                        self.skipTest(f"this processor has no fast arithmetic on {precision}")
                report, _ = self.bench("bench_train", *arguments)
                self.assertEqual([(row["precision"], row["batch_size"]) for row in report["rows"]],
                                 [(precision, 1), (precision, 3)])

    def test_inference_refuses_what_it_cannot_do(self):
        run = self.run_program("--precision=int8", program="bench_train")
        self.assertRegex(run.err, "--precision: int8 is for --inference only")
        run = self.run_program("--inference", "--precision=int8", "--model=mlp", program="bench_train")
        self.assertRegex(run.err, "only residual networks .* choose resnet18 or resnet34")
        run = self.run_program("--inference", program="bench_train", ranks=2)
        self.assertRegex(run.err, "--inference: measures one rank; got 2")


class AllReduce(BenchTest):
    def test_columns_are_those_of_nccl_tests(self):
        report, out = self.bench("bench_all_reduce", "-b", "1K", "-e", "16K", "-f", "4", "-n", "4", "-w", "1",
                                 "--zero-copy-baseline")
        self.assertRegex(out, r"# +size +count +type +redop +root +time +algbw +busbw +#wrong +time")
        self.assertRegex(out, r"(?m)^ +16384 +4096 +float +sum +-1 ")
        self.assertIn("# Out of bounds values : 0 OK", out)
        self.assertEqual([row["size"] for row in report["rows"]], [1024, 4096, 16384])
        for row in report["rows"]:
            for key in ("in_place_us", "out_of_place_us", "zero_copy_us"):
                self.ordered(row[key])
            self.assertAlmostEqual(row["algbw"] * row["in_place_us"]["p50"] * 1e3 / row["size"], 1, places=6)
            self.assertAlmostEqual(row["busbw"], row["algbw"], msg="2 (n - 1) / n is 1 for two ranks")
            self.assertEqual(row["wrong"], 0)

    def test_every_operation_on_every_type_is_right(self):
        for datatype in ("float", "double", "half", "bfloat16", "int32", "int64", "uint8"):
            for op in ("sum", "avg", "min", "max", "prod"):
                report, _ = self.bench("bench_all_reduce", "-b", "1K", "-e", "1K", "-n", "1", "-w", "0", "-o", op, "-d",
                                       datatype, ranks=3)
                self.assertEqual(report["rows"][0]["wrong"], 0, (datatype, op))

    def test_the_other_columns_are_those_of_osu(self):
        _, out = self.bench("bench_all_reduce", "-b", "1K", "-e", "2K", "-n", "2", "--format=osu")
        self.assertRegex(out, r"(?m)^# Size +Avg Latency\(us\)\n1024 +\d+\.\d\d\n2048 +\d+\.\d\d$")

    def test_mistakes_are_named(self):
        for arguments, pattern in ((("-b", "1X"), "-b: needs bytes like"),
                                   (("-b", "2K", "-e", "1K"), "-b: must not exceed"),
                                   (("--mpi",), "mpirun -np"),
                                   (("--zero-copy-baseline", "-o", "max"), "sums floats")):
            run = self.run_program(*arguments, program="bench_all_reduce")
            self.assertEqual(run.code, 1, run)
            self.assertRegex(run.err, pattern)


class Distribution(BenchTest):
    def test_strategies_side_by_side(self):
        report, out = self.bench("bench_strategies", "--model=mlp", "--batch-size=4", "--steps=2", "--warmup=1")
        names = [row["candidate"] for row in report["rows"]]
        self.assertEqual(names[0], "no synchronisation")
        self.assertLessEqual({"flat", "per_parameter", "bucketed, plan auto"}, set(names))
        for row in report["rows"]:
            self.ordered(row["step_ms"])
        self.assertIn("fastest that synchronises", out)

    def test_comm_hooks_side_by_side(self):
        report, _ = self.bench("bench_comm_hooks", "--elements=10000", "--steps=2", "--hooks=none,bf16")
        none, half = report["rows"]
        self.assertEqual((none["hook"], half["hook"]), ("none", "bf16"))
        self.assertEqual(none["wire_bytes"], 40000)
        self.assertLess(half["wire_bytes"], none["wire_bytes"])
        self.assertLess(none["relative_error"], 1e-6)


@requires_mpi
class UnderMpi(BenchTest):
    def test_all_reduce_beside_mpi(self):
        report, _ = self.bench("bench_all_reduce", "-b", "1K", "-e", "4K", "-f", "4", "-n", "4", "--mpi",
                               "--zero-copy-baseline", mpi=2)
        for row in report["rows"]:
            self.ordered(row["mpi_us"])
            self.ordered(row["zero_copy_us"])
            self.assertEqual(row["wrong"], 0)

    def test_training_on_processes(self):
        report, _ = self.bench("bench_train", "--model=mlp", "--batch-size=4", "--steps=2", "--threads=1", mpi=2)
        self.assertEqual(report["rows"][0]["ranks"], 2)
        self.assertEqual(list(report["rows"][0]["synchronisation_ms"]), SPREAD)


class Comparison(BenchTest):
    def compare(self, *arguments):
        file = self.folder / "compare.json"
        run = subprocess.run([sys.executable, "-B", ROOT / "apps/bench/peers/compare.py", "--bin", settings.bin,
                              "--quick", "--json", file, *arguments],
                             capture_output=True, text=True, check=False, env=environment())
        self.assertEqual((run.returncode, run.stderr), (0, ""), run)
        return json.loads(file.read_text(encoding="utf-8")), run.stdout

    def test_without_pytorch_it_measures_us_and_says_what_is_missing(self):
        result, out = self.compare("--python", "/bin/false", "--only=training,all_reduce")
        self.assertRegex(out, r"skipped: PyTorch: /bin/false cannot import torch .*apt-get install python3-torch")
        [row] = result["training"]
        self.assertGreater(row["ours"], 0)
        self.assertIsNone(row["ratio"])
        self.assertTrue(all(r["ours_us"] > 0 and r["gloo_us"] is None for r in result["all_reduce"]))
        self.assertTrue(any("PyTorch" in line for line in result["skipped"]))
        self.assertNotIn(str(settings.bin), result["command"])

    def test_with_pytorch_it_prints_ratios(self):
        torch = subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True, check=False)
        if torch.returncode != 0:
            self.skipTest("/usr/bin/python3 has no torch")
        result, out = self.compare("--only=training,ranks")
        self.assertEqual(result["skipped"], [] if settings.mpi else result["skipped"], out)
        [row] = result["training"]
        self.assertAlmostEqual(row["ratio"], row["ours"] / row["torch"])
        self.assertGreater(row["torch_peak_mib"], 0)
        self.assertIsNotNone(result["ranks"]["torch_synchronisation_ms"])


if __name__ == "__main__":
    main()
