# SPDX-License-Identifier: MIT
# tests/apps/recipes_test.py - flags that shape training do what they say: states are saved and found again, memory is
# traded for nothing, and every optimizer, schedule and extra lowers the loss. Read first: program.py.
import unittest

from program import IN_ORDER, ProgramTest, main

# Ten passes over images that stay as they are: the MLP learns them, from 2.3 to under 1.2 with every recipe here.
LEARN = ("--synthetic=256", "--batch-size=32", "--steps=80", "--limit-test=50", "--lr=0.05", "--no-augment")
HARDER = ("--synthetic=256", "--batch-size=32", "--steps=40", "--limit-test=50")  # Stays above 2.
RESNET = ("--model=resnet18", "--synthetic=16", "--batch-size=4", "--steps=2", "--limit-test=2")

AT_REST = ("--steps=1", "--lr=1e-30", "--weight-decay=0")  # Evaluates what was loaded: such a step moves no bit.


class States(ProgramTest):
    def test_a_saved_state_evaluates_the_same(self):
        state = self.folder / "mlp.safetensors"
        for how in ({}, {"ranks": 2}):
            saved = self.train(*LEARN, "--save", state, **how)
            loaded = self.train(*LEARN, *AT_REST, "--init", state)
            self.assertEqual(loaded.sha, saved.sha)
            self.assertEqual(loaded.correct, saved.correct)
            # One rank or two: the same sums in another order.
            self.assertAlmostEqual(loaded.evaluations[-1]["test_loss"], saved.evaluations[-1]["test_loss"], 5)

    def test_a_saved_resnet_comes_back_with_its_statistics(self):
        state = self.folder / "resnet.safetensors"
        saved = self.train(*RESNET, "--save", state)
        one, two = [self.train(*RESNET, *AT_REST, "--init", state) for _ in range(2)]
        self.assertEqual(one.sha, saved.sha, "parameters, bit for bit")
        self.assertEqual(one.evaluations, two.evaluations)
        # The step moved its running statistics by a tenth: near the saved evaluation, not near that of fresh ones.
        fresh = self.train(*RESNET, *AT_REST)
        loaded, new, wanted = [run.evaluations[-1]["test_loss"] for run in (one, fresh, saved)]
        self.assertLess(abs(loaded - wanted), 0.5 * abs(new - wanted))

    def test_training_goes_on_from_a_state(self):
        state = self.folder / "state.safetensors"
        first = self.train(*LEARN, "--save", state)
        more = self.train(*LEARN, "--init", state, "--lr=0.001", ranks=2)
        self.assertLess(more.losses[0], 0.8 * first.losses[0])

    def test_all_ranks_get_the_state(self):
        # Also the one with another initial model: rank 0's is sent to all.
        state = self.folder / "state.safetensors"
        self.train("--steps=3", "--save", state)
        runs = [self.train("--steps=2", "--init", state, f"--seed={seed}", *IN_ORDER, "--allow-short",
                           "--data", self.written(), ranks=2)
                for seed in (1, 2)]
        self.assertEqual(runs[0].sha, runs[1].sha, "no other randomness is left")

    def written(self):
        """Synthetic data as files: the same images for any --seed."""
        if not (self.folder / "data").exists():
            run = self.run_program("--out", self.folder / "data", "--train=64", "--test=10",
                                   program="make_synthetic_cifar")
            self.assertEqual((run.code, run.err), (0, ""))
        return self.folder / "data"


class Memory(ProgramTest):
    def test_recomputing_changes_no_digit(self):
        for arguments in (("--steps=4",), RESNET):
            for how in ({}, {"ranks": 2}):
                plain = self.train(*arguments, **how)
                recomputed = self.train(*arguments, "--checkpoint-activations", **how)
                self.assertEqual(plain.losses, recomputed.losses)
                self.assertEqual(plain.sha, recomputed.sha)
                self.assertEqual(plain.evaluations, recomputed.evaluations)

    def test_bf16_stays_near_f32(self):
        for arguments in (HARDER, (*RESNET, "--lr=0.001")):
            run = self.train(*arguments, "--precision=bf16")
            if "this processor has no instructions for it" in run.out:
                self.skipTest("this processor has no instructions for bf16")
            full, half = self.train(*arguments).losses, run.losses
            self.assertNotEqual(full, half)
            # Means of the last steps: a single small batch is noisy.
            tail = min(8, len(full))
            full_end, half_end = sum(full[-tail:]) / tail, sum(half[-tail:]) / tail
            self.assertLess(abs(full_end - half_end), 0.02 * full_end, (full, half))


class Learning(ProgramTest):
    def falls(self, *arguments, **how):
        losses = self.train(*LEARN, *arguments, **how).losses
        first, last = sum(losses[:8]) / 8, sum(losses[-8:]) / 8
        self.assertLess(last, 0.6 * first, (arguments, losses))
        return losses

    def test_every_optimizer(self):
        for arguments in (("--optimizer=sgd",), ("--optimizer=sgd", "--nesterov"), ("--optimizer=sgd", "--momentum=0"),
                          ("--optimizer=adamw", "--lr=0.001"), ("--optimizer=lars", "--lr=2")):
            self.falls(*arguments)
            self.falls(*arguments, ranks=2)

    def test_every_schedule_has_its_shape(self):
        rates = {}
        for name in ("constant", "step", "cosine", "one_cycle"):
            run = self.train(*LEARN, f"--schedule={name}")
            rates[name] = [r["lr"] for r in run.steps]
            self.assertLess(sum(run.losses[-8:]), 0.6 * sum(run.losses[:8]), name)
            self.assertAlmostEqual(max(rates[name]), 0.05, delta=5e-4)  # --lr is the peak of each.
        self.assertEqual(set(rates["constant"]), {0.05})
        self.assertEqual(rates["step"], sorted(rates["step"], reverse=True))
        self.assertGreater(len(set(rates["step"])), 1)
        self.assertLess(rates["cosine"][-1], 1e-3)
        self.assertLess(rates["one_cycle"][0], 0.5 * max(rates["one_cycle"]))
        self.assertLess(rates["one_cycle"][-1], 1e-4)

    def test_extras(self):
        plain = self.falls()
        for extra in (("--clip-norm=1",), ("--no-norm-decay", "--weight-decay=0.01"), ("--cutout=8",),
                      ("--noise-std=0.1",)):
            self.assertNotEqual(self.falls(*extra), plain, extra)
        smooth = self.train(*LEARN, "--label-smoothing=0.1").losses
        self.assertLess(sum(smooth[-8:]), 0.6 * sum(smooth[:8]))
        self.assertNotEqual(smooth, plain)

    def test_average_of_parameters_is_evaluated_and_not_trained(self):
        plain, averaged = self.train(*LEARN), self.train(*LEARN, "--ema=0.9")
        self.assertEqual(plain.losses, averaged.losses)
        self.assertEqual(plain.sha, averaged.sha)
        # It lags behind while parameters move, and has caught up when they rest.
        self.assertGreater(averaged.evaluations[1]["test_loss"], 1.05 * plain.evaluations[1]["test_loss"])
        self.assertNotEqual(plain.evaluations[-1], averaged.evaluations[-1])
        for run in (plain, averaged):
            self.assertGreater(run.evaluations[-1]["test_accuracy"], 0.5, "of unseen images; guessing gives 0.1")


class Targets(ProgramTest):
    def target(self, run):
        return [r for r in run.records if "target_accuracy" in r]

    def test_training_stops_at_the_first_evaluation_that_reaches_the_target(self):
        whole = [r["test_accuracy"] for r in self.train(*LEARN).evaluations]
        first = next(i for i, accuracy in enumerate(whole) if accuracy >= 0.3)
        self.assertLess(first, len(whole) - 1, "or the test shows nothing")
        for how in ({}, {"ranks": 2, "batch": 16}):
            batch = how.pop("batch", 32)
            run = self.train(*LEARN, f"--batch-size={batch}", "--target-accuracy=30", **how)
            seen = [r["test_accuracy"] for r in run.evaluations]
            self.assertGreaterEqual(seen[-1], 0.3)
            self.assertTrue(all(accuracy < 0.3 for accuracy in seen[:-1]), seen)
            self.assertEqual(len(run.steps), 8 * len(seen), "no step after it")
            self.assertLess(len(run.steps), 80)
            [record] = self.target(run)
            self.assertEqual((record["target_accuracy"], record["epoch"], record["reached"]),
                             (0.3, len(seen) - 1, seen[-1]))
            self.assertLess(0, record["seconds"])
            self.assertLess(record["seconds"], run.seconds)
            self.assertRegex(run.out, rf"target reached: {100 * seen[-1]:.2f} % after epoch {len(seen)}, 0 min \d+ s\n")
            self.assertTrue(run.sha, "and ends as always")

    def test_only_evaluations_count(self):
        run = self.train(*LEARN, "--target-accuracy=15", "--eval-every=4")
        self.assertEqual(run.evaluations[0]["epoch"], 3)
        self.assertIn((len(run.steps), len(self.target(run))), ((32, 1), (64, 1), (80, 1), (80, 0)))

    def test_a_target_out_of_reach_changes_nothing(self):
        run = self.train(*LEARN, "--target-accuracy=100")
        self.assertEqual(len(run.steps), 80)
        self.assertEqual(self.target(run), [])
        self.assertNotIn("target reached", run.out)

    def test_without_evaluations_there_is_no_target(self):
        self.refuse(2, "--target-accuracy: needs", *LEARN, "--target-accuracy=50", "--eval-every=0")
        self.refuse(2, "--target-accuracy: needs", *LEARN, "--target-accuracy=nan")
        self.refuse(2, "--target-accuracy", *LEARN, "--target-accuracy=101")

    def test_mirror_images_count_as_much_as_images(self):
        # A test set and the same in the mirror: equal with --eval-flip, different without.
        folders = [self.folder / name for name in ("plain", "mirrored")]
        for folder in folders:
            made = self.run_program("--out", folder, "--train=64", "--test=10", program="make_synthetic_cifar")
            self.assertEqual((made.code, made.err), (0, ""))
        [file] = folders[1].rglob("test_batch.bin")
        data = bytearray(file.read_bytes())
        for start in range(0, len(data), 3073):
            for row in range(start + 1, start + 3073, 32):
                data[row:row + 32] = data[row:row + 32][::-1]
        file.write_bytes(data)
        for flags, same in ((("--eval-flip",), True), ((), False)):
            one, two = [self.train("--steps=8", "--allow-short", "--data", folder, *flags) for folder in folders]
            self.assertEqual(one.losses, two.losses, "training does not know")
            difference = abs(one.evaluations[-1]["test_loss"] - two.evaluations[-1]["test_loss"])
            (self.assertLess if same else self.assertGreater)(difference, 1e-5)
            self.assertEqual("with mirror images" in one.out, same)


if __name__ == "__main__":
    main()
