# SPDX-License-Identifier: MIT
# tests/apps/agreement_test.py - what must not change the result: when gradients travel, on what, in which pieces and
# on how many ranks. Bit for bit where floating point allows it: a sum of two is the same in either order, so two ranks
# end alike whatever the buckets; with more ranks --deterministic adds in rank order. Read first: program.py.
import unittest

from program import IN_ORDER, ProgramTest, main, requires_mpi

# Strategies, and cuts of the bucketed one: everything alone, some together, all in one.
SYNCS = [("--sync=naive",), ("--sync=flat",), ("--sync=per_parameter",), ("--sync=bucketed",),
         ("--sync=bucketed", "--bucket-mb=0.001", "--first-bucket-mb=0.0001"),
         ("--sync=bucketed", "--bucket-mb=1.5", "--first-bucket-mb=3"),
         ("--sync=bucketed", "--bucket-mb=1000", "--first-bucket-mb=1000")]
RESNET = ("--model=resnet18", "--synthetic=16", "--batch-size=4", "--steps=2", "--limit-test=2")


class Strategies(ProgramTest):
    def agree(self, *arguments, syncs=tuple(SYNCS), backend="ranks"):
        """Two ranks end with the same parameters, whatever carries them and when."""
        ends = {sync: self.train(*arguments, *sync, **{backend: 2}).sha for sync in syncs}
        self.assertEqual(len(set(ends.values())), 1, ends)
        return ends.popitem()[1]

    def test_mlp_on_threads(self):
        sha = self.agree("--steps=8")
        # And something was trained, on something that differs from what one rank sees.
        self.assertNotEqual(sha, self.train("--steps=8").sha)
        self.assertNotEqual(sha, self.train("--steps=7", ranks=2).sha)

    def test_resnet18_on_threads(self):
        self.agree(*RESNET, syncs=SYNCS[:4] + SYNCS[5:6])  # From one to 62 pieces.

    def test_wire_algorithms_for_two_ranks(self):
        ends = {name: self.train("--steps=4", f"--algorithm={name}", ranks=2).sha
                for name in ("auto", "naive", "ring", "tree", "halving_doubling")}
        self.assertEqual(len(set(ends.values())), 1, ends)

    def test_accumulation_under_every_strategy(self):
        self.agree("--steps=3", "--accumulate=2")


@requires_mpi
class StrategiesUnderMpi(Strategies):
    """The base class's cases once more, with the processes of mpirun beside the threads."""

    def agree(self, *arguments, **syncs):
        sha = super().agree(*arguments, **syncs, backend="mpi")
        self.assertEqual(sha, self.train(*arguments, "--sync=flat", ranks=2).sha, "threads and MPI agree")
        return sha

    # One launch a strategy is slow enough; what has nothing to do with MPI is left to the base class.
    test_wire_algorithms_for_two_ranks = None
    test_accumulation_under_every_strategy = None


class Worlds(ProgramTest):
    # Without batch norm: its statistics are those of a rank's own batch, so that a ResNet's loss depends on the split.
    def close(self, *runs):
        first, *others = [run.losses for run in runs]
        for losses in others:
            for one, other in zip(first, losses, strict=True):
                self.assertLess(abs(one - other), 1e-5 * one, (first, losses))

    def test_losses_do_not_depend_on_the_number_of_ranks(self):
        arguments = ("--steps=8", "--synthetic=96", "--lr=0.05", *IN_ORDER)
        alone = self.train(*arguments, "--batch-size=24")
        self.assertGreater(alone.losses[0], 1.02 * alone.losses[-1], "there is something to compare")
        for ranks in (2, 3, 4):
            self.close(alone, self.train(*arguments, f"--batch-size={24 // ranks}", ranks=ranks))
        self.close(alone, self.train(*arguments, "--batch-size=6", "--accumulate=2", ranks=2))

    def test_deterministic_sums_do_not_depend_on_buckets(self):
        for ranks in (3, 4):
            ends = {sync: self.train("--steps=4", "--deterministic", *sync, ranks=ranks).sha for sync in SYNCS}
            self.assertEqual(len(set(ends.values())), 1, ends)

    def test_a_run_repeats_bit_for_bit_and_the_seed_matters(self):
        for how in ({}, {"ranks": 2}, {"ranks": 4}):
            one, two = self.train("--steps=6", **how), self.train("--steps=6", **how)
            self.assertEqual((one.sha, one.losses), (two.sha, two.losses))
        seeds = [self.train("--steps=6", f"--seed={seed}").sha for seed in (0, 1, 2**63)]
        self.assertEqual(len(set(seeds)), 3)
        one, two = self.train(*RESNET), self.train(*RESNET)
        self.assertEqual(one.sha, two.sha)

    def test_replanning_changes_no_bit_for_two_ranks(self):
        arguments = ("--epochs=15", "--net=1gbit,1ms", "--bucket-mb=0.2", "--first-bucket-mb=0.1")
        planned = self.train(*arguments, "--plan=auto", ranks=2)
        self.assertRegex(planned.out, r"plan auto: \d+ buckets? since step \d+; "
                                      r"exposed [\d.]+ ms, predicted [\d.]+ ms, before [\d.]+ ms")
        self.assertEqual(planned.sha, self.train(*arguments, "--plan=size", ranks=2).sha)

    def test_a_modelled_network_changes_times_only(self):
        plain = self.train("--steps=3", ranks=2)
        slow = self.train("--steps=3", "--net=1gbit,1ms", ranks=2)
        self.assertEqual(plain.sha, slow.sha)
        self.assertGreater(min(r["comm_ms"] for r in slow.steps), 1)


class Evaluation(ProgramTest):
    """Ten images, on worlds that ten cannot be divided by: each counts once (pytorch/pytorch#25162)."""

    def count(self, *arguments, how):
        # A rate that moves nothing; rank 0 trains on the same first records in every world, so that the running
        # statistics of batch norm, which it gives to the others, are the same as well.
        run = self.train("--synthetic=50", "--steps=1", "--lr=1e-30", "--weight-decay=0", "--schedule=constant",
                         *IN_ORDER, *arguments, **how)
        correct, images = run.correct
        self.assertEqual(images, 10)
        self.assertAlmostEqual(run.evaluations[-1]["test_accuracy"], correct / 10, places=9)
        return correct, run.evaluations[-1]["test_loss"]

    def same_count(self, hows, *arguments):
        (first, loss), *others = [self.count(*arguments, how=how) for how in hows]
        for correct, other_loss in others:
            self.assertEqual(correct, first)
            self.assertAlmostEqual(loss, other_loss, delta=1e-5 * loss)  # Sums in another order.
        return first

    def trained(self, *arguments):
        state = self.folder / "state.safetensors"
        self.train("--synthetic=50", *arguments, "--save", state)
        return state

    def test_mlp_on_one_to_four_ranks(self):
        state = self.trained("--steps=12", "--batch-size=16")
        for batch in (1, 3, 12):  # Per rank; also more than a rank has to evaluate.
            self.same_count([{}, {"ranks": 2}, {"ranks": 3}, {"ranks": 4}], "--init", state, f"--batch-size={batch}")

    def test_more_ranks_than_images(self):
        state = self.trained("--steps=12", "--batch-size=16")
        one = self.train("--init", state, "--limit-test=2", "--steps=1", "--lr=1e-30", "--weight-decay=0").correct
        four = self.train("--init", state, "--limit-test=2", "--steps=1", "--lr=1e-30", "--weight-decay=0", ranks=4)
        self.assertEqual(one, four.correct)
        self.assertEqual(one[1], 2)

    def test_resnet18_on_one_to_four_ranks(self):
        state = self.trained("--model=resnet18", "--steps=2", "--batch-size=4")
        self.same_count([{}, {"ranks": 2}, {"ranks": 3}, {"ranks": 4}], "--init", state, "--model=resnet18",
                        "--batch-size=3")


@requires_mpi
class OnFourProcesses(ProgramTest):
    """More ranks than most small machines have cores, in a container or not (open-mpi/ompi#4948, #6020)."""

    def test_four_ranks_agree_in_silence_and_with_threads(self):
        # train() demands an empty stderr: no "Read -1", no "not enough slots", no warning.
        mpi = self.train("--steps=4", "--deterministic", mpi=4)
        self.assertRegex(mpi.out, r"4 ranks x 1 thread \(mpi \+ shared memory\)")
        self.assertEqual(mpi.sha, self.train("--steps=4", "--deterministic", ranks=4).sha)
        self.assertEqual(mpi.out.count("params sha256"), 1, "rank 0 speaks for all, after they have compared")
        self.assertEqual(mpi.sha, self.train("--steps=4", mpi=4).sha, "shared memory adds in rank order by itself")
        plain = self.train("--steps=4", "--deterministic", "--backend=plain_mpi", mpi=4)
        self.assertRegex(plain.out, r"4 ranks x 1 thread \(mpi\)")
        self.assertEqual(mpi.sha, plain.sha)

    def test_resnet18_on_four_ranks(self):
        run = self.train("--model=resnet18", "--synthetic=16", "--batch-size=2", "--steps=2", "--limit-test=3", mpi=4)
        self.assertEqual(run.correct[1], 3)

    def test_evaluation_counts_once_on_three_and_four(self):
        state = self.folder / "state.safetensors"
        self.train("--synthetic=50", "--steps=12", "--batch-size=12", "--save", state)
        arguments = ("--synthetic=50", "--init", state, "--steps=1", "--lr=1e-30", "--weight-decay=0")
        counts = [self.train(*arguments, **how).correct for how in ({}, {"mpi": 3}, {"mpi": 4})]
        self.assertEqual(len(set(counts)), 1, counts)
        self.assertEqual(counts[0][1], 10)

    def test_losses_equal_those_of_one_rank(self):
        arguments = ("--steps=4", "--synthetic=96", *IN_ORDER)
        alone = self.train(*arguments, "--batch-size=24").losses
        for one, other in zip(alone, self.train(*arguments, "--batch-size=6", mpi=4).losses, strict=True):
            self.assertLess(abs(one - other), 1e-5 * one)

    def test_one_process_under_mpirun_is_plain_training(self):
        self.assertEqual(self.train("--steps=3", mpi=1).sha, self.train("--steps=3").sha)


if __name__ == "__main__":
    main()
