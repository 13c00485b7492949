# SPDX-License-Identifier: MIT
# tests/apps/device_test.py - training with --device cuda on the emulated GPU (docs/gpu.md): checkpoints, f16 with its
# loss scale, images that become floats there. Read first: program.py.
import re

from checkpoint_test import CheckpointTest
from program import ROOT, TINY, ProgramTest, execute, last_wins, main, requires_mpi, settings

# What has state, in six steps: an emulated device is slow.
STATEFUL = ("--epochs=2", "--accumulate=2", "--ema=0.9", "--clip-norm=1")
ONE_RANK, TWO_RANKS = "--synthetic=48", "--synthetic=96"


class OnDevice:
    """Runs programs on the emulated GPU: a device for each of two ranks, or one for both."""

    devices = 2

    def run_program(self, *arguments, **how):
        how.setdefault("LD_LIBRARY_PATH", str(settings.bin.parent / "fake_gpu"))
        return super().run_program(*arguments, FAKE_GPU_COUNT=str(self.devices), **how)


class Checkpoints(OnDevice, CheckpointTest):
    """Theorem 4 on a device, and from the CPU to a device and back."""

    def check(self, *arguments, **how):
        arguments = (*TINY, *STATEFUL, "--device=cuda", "-q", *arguments)
        whole = self.train(*arguments, **how)
        saving = self.train(*arguments, "--save-every=2", "--keep-last=9", **how)
        self.assertEqual(saving.sha, whole.sha, "saving changes nothing")
        self.drop_after(saving, 4)
        again = self.resume(saving, *last_wins(arguments), "--save-every=2", "--keep-last=9", **how)
        self.assertRegex(again.out, r"(?m)^goes on from .*step_000004, behind step 4 in epoch ")
        self.assertNotIn("not bit-identical", again.out)
        self.assertEqual(again.sha, whole.sha, again)
        self.assertEqual(self.lines(again), self.lines(whole), "no line is missing or told twice")
        return saving

    def test_one_rank_with_adamw(self):
        self.check(ONE_RANK, "--optimizer=adamw", "--lr=0.001")

    def test_two_ranks(self):
        self.check(TWO_RANKS, ranks=2)

    def test_f16_finds_its_loss_scale_again(self):
        """Step 4, the last before the stop, overflows."""
        fault = {"BRIGADE_FAULT": "gradient:rank=1:step=4:action=nan"}
        arguments = (*TINY, *STATEFUL, TWO_RANKS, "--device=cuda", "--precision=f16", "-q")
        folder = self.folder / "run"
        saving = self.run_program(*last_wins(arguments), "--save-every=2", "--keep-last=9", f"--out={folder}", ranks=2,
                                  **fault)
        self.assertEqual(saving.code, 0, saving)
        if "this build has no fault points" in saving.err:
            self.skipTest("this build has no fault points")
        self.assertRegex(saving.out, "step 4 skipped: the loss is finite, but the gradient is not; first on rank 1, "
                                     'bucket \\d+, parameter ".*"; the loss scale is 32768 now')
        saving.folder = folder
        lines = self.lines(saving)
        self.drop_after(saving, 4)
        again = self.resume(saving, *last_wins(arguments), "--save-every=2", "--keep-last=9", ranks=2)
        self.assertEqual(again.sha, saving.sha, again)
        self.assertEqual(self.lines(again), lines)

    def test_from_the_cpu_to_a_device_and_back(self):
        for first, second in (("cpu", "cuda"), ("cuda", "cpu")):
            saving = self.train(*STATEFUL, ONE_RANK, f"--device={first}", "--save-every=2", "--keep-last=9", "-q")
            self.drop_after(saving, 2)
            losses = saving.losses
            again = self.resume(saving, *last_wins((*TINY, *STATEFUL, ONE_RANK)), f"--device={second}",
                                "--save-every=2", "-q")
            self.assertRegex(again.out, r'not bit-identical .*device "(CPU|emulated.*)" -> "(CPU|emulated.*)"')
            for a, b in zip(again.losses, losses, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4)


class CheckpointsOfOneDevice(Checkpoints):
    """Where ranks share a device only what travels is another thing."""

    devices = 1
    test_one_rank_with_adamw = test_f16_finds_its_loss_scale_again = test_from_the_cpu_to_a_device_and_back = None


class Choice(ProgramTest):
    @requires_mpi
    def test_the_rank_that_has_no_gpu_is_named_by_all(self):
        spoil = '[[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} == 0 ]] || export FAKE_GPU_DRIVER=0; exec "$@"'
        run = execute(["bash", "-c", 'source "$1/scripts/lib.sh"; shift; mpi_run "$@"', "bash", ROOT, 2, "bash", "-c",
                       spoil, "bash", settings.bin / "train_resnet18", *TINY, "--steps=1", "--device=auto"], 60,
                      LD_LIBRARY_PATH=str(settings.bin.parent / "fake_gpu"))
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out, r"(?m)^device cpu: rank 1 on .*: no CUDA device: no NVIDIA driver")


class NotFinite(OnDevice, ProgramTest):
    def test_a_nan_in_the_last_step_of_an_epoch_is_named_as_on_the_cpu(self):
        arguments = (*TINY, "--steps=8", "--eval-every=1", "-q")
        fault = {"BRIGADE_FAULT": "data:rank=1:hit=4:action=nan"}
        for device in ("cpu", "cuda"):
            run = self.run_program(*last_wins((*arguments, f"--device={device}")), ranks=2, **fault)
            if "this build has no fault points" in run.err:
                self.skipTest("this build has no fault points")
            self.assertEqual(run.code, 1, run)
            self.assertRegex(run.err, r"ddp: step 4: the loss is not finite; first on rank 1, bucket 0, parameter "
                                      r'"layers\.4\..*"; nothing was updated')

    def test_a_fault_that_a_captured_step_would_miss_is_refused(self):
        run = self.run_program(*TINY, "--steps=8", "--device=cuda", "--cuda-graph",
                               BRIGADE_FAULT="data:hit=6:action=nan")
        if "this build has no fault points" in run.err:
            self.skipTest("this build has no fault points")
        self.assertEqual(run.code, 1, run)
        self.assertRegex(run.err, "fault: data lies inside a captured step; run without --cuda-graph")


class Precision(OnDevice, ProgramTest):
    def test_an_overflow_on_one_rank_is_skipped_by_all_and_told(self):
        run = self.run_program(*TINY, "--steps=6", "--device=cuda", "--precision=f16", f"--out={self.folder / 'run'}",
                               ranks=2, BRIGADE_FAULT="gradient:rank=1:step=3:action=nan")
        self.assertEqual(run.code, 0, run)
        if "this build has no fault points" in run.err:
            self.skipTest("this build has no fault points")
        run.folder = self.folder / "run"
        told = [r for r in run.records if r.get("event") == "skipped"]
        self.assertRegex(told[0].pop("reason"), "the gradient is not; first on rank 1, bucket ")
        self.assertEqual(told, [{"event": "skipped", "step": 3, "loss_scale": 32768}])
        self.assertEqual(len(re.findall("(?m)^step 3 skipped: ", run.out)), 1, run)

    def test_f16_learns_as_f32_does(self):
        ends = [self.train("--steps=6", "--device=cuda", f"--precision={p}").losses for p in ("f32", "f16")]
        for a, b in zip(*ends):
            self.assertAlmostEqual(a, b, delta=0.02)

    def test_a_step_launched_as_one_graph_has_the_same_bits(self):
        """The loss scale is a part of the graph, and so are images that the device makes of bytes."""
        flags = ("--steps=7", "--device=cuda", "--precision=f16", "--cutout=8", "--optimizer=lars", "--clip-norm=1")
        plain, graph = self.train(*flags), self.train(*flags, "--cuda-graph")
        self.assertIn("is captured: from here on a step is one launch", graph.out)
        self.assertEqual(graph.losses, plain.losses)
        self.assertEqual(graph.sha, plain.sha)

    def test_without_a_gpu_there_is_no_f16(self):
        run = self.train("--steps=2", "--device=cpu", "--precision=f16")
        self.assertIn("--precision f16: this processor has no instructions for it; training in f32", run.out)

    def test_what_does_not_go_with_it_is_refused(self):
        for flag, complaint in (("--non-finite=error", "--non-finite: --precision f16 finds its loss scale"),
                                ("--comm-hook=topk", "--comm-hook: --precision f16 scales gradients")):
            self.refuse(2, complaint, *TINY, "--device=cuda", "--precision=f16", flag)


class Images(OnDevice, ProgramTest):
    def test_losses_are_those_of_images_made_on_the_cpu(self):
        for flags in ((), ("--cutout=8",), ("--no-augment",), ("--noise-std=0.1",)):
            losses = [self.train("--steps=3", f"--device={device}", *flags).losses for device in ("cpu", "cuda")]
            for a, b in zip(*losses):
                self.assertAlmostEqual(a, b, delta=1e-5, msg=f"{flags}: {losses}")


if __name__ == "__main__":
    main()
