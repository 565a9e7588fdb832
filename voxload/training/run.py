"""Run: one rank's training loop over blocks, from a plan to a result."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from voxload.errors import StorageError
from voxload.grid import ProcessGrid
from voxload.launch.devices import ON_HOST
from voxload.training.checkpoint import Checkpoint, Randomness, read_together
from voxload.training.data import TRAINING, VALIDATION, TrainingData
from voxload.training.figures import LossMean, Progress, mean_marks, publish, rank_reports
from voxload.training.learner import Learner, on_host
from voxload.training.plan import UNET3D, TrainingPlan
from voxload.training.result import Epoch, TrainingResult
from voxload.training.resume import (
    GlobalBatch,
    check_same_data,
    check_same_plan,
    check_same_samples,
    prolonged,
    small_differences,
)
from voxload.training.tasks import Regression, Segmentation, Task
from voxload.training.tensorboard import Scalars

Tell = Callable[[dict[str, Any]], None]
"""Hears of what happened in a run, as values that are fit for JSON."""


class Run:
    """A network, its data and its optimiser on one rank; every rank of the job makes one, executes and closes it.

    Parameters
    ----------
    plan
        What to train.
    grid
        The ranks; torch.distributed is initialised when there are several.
    device
        What this rank computes on; the host by default.

    Raises
    ------
    UsageError
        When plan, data, grid and, with ``resume``, checkpoint do not fit each other.
    """

    def __init__(self, plan: TrainingPlan, grid: ProcessGrid, *, device: torch.device = ON_HOST) -> None:
        self.plan = plan
        self.grid = grid
        self._global_batch = GlobalBatch(grid.groups, plan.optimisation.batch_size)
        saved = read_together(Path(plan.output), rank=grid.rank) if plan.resume else None
        if saved is not None:
            check_same_plan(saved.plan, plan)
            check_same_samples(_dealing_of(saved), self._global_batch)
        self.data = TrainingData(plan, grid, device=device, moments=None if saved is None else saved.moments)
        self.task = self._task()
        recipe = plan.optimisation
        torch.manual_seed(recipe.seed)
        steps = recipe.epochs * len(self.data.loader)
        network = self.task.network().to(device)
        self.learner = Learner(
            network,
            grid,
            shape=self.data.shape,
            recipe=recipe,
            steps=steps,
            layers=plan.layers,
            recompute=plan.recompute,
        )
        self.progress = Progress()
        self._marks = torch.zeros(0)
        self._device = device
        self._random: Randomness | None = None
        if saved is not None:
            self._restore(saved)
        self._scalars: Scalars | None = None
        if plan.tensorboard and grid.rank == 0:
            self._scalars = Scalars(plan.tensorboard, self.task.names, behind=len(self.progress.epochs))

    def execute(self, tell: Tell) -> TrainingResult:
        """Train the epochs that are not behind, and return the result, equal on every rank.

        `tell` hears of each epoch's figures and of each checkpoint, once it is written.
        """
        if not self.plan.resume:
            self._save(tell)
        while len(self.progress.epochs) < self.plan.optimisation.epochs:
            epoch = self._epoch(tell)
            number = len(self.progress.epochs)
            if self.plan.prometheus:
                loaders = {TRAINING: self.data.loader, VALIDATION: self.data.judge}
                publish(loaders, Path(self.plan.prometheus), grid=self.grid)
            if self._scalars is not None:
                self._scalars.add(number, epoch, rate=self.learner.rate)
            self._checkpoint(tell)
            tell({"event": "epoch", "number": number, **dataclasses.asdict(epoch)})
        return self._result()

    def weights(self) -> dict[str, Tensor]:
        """Return the network's weights under their own names, as one process would have them."""
        weights: dict[str, Tensor] = on_host(self.learner.network.state_dict())
        return weights

    def close(self) -> None:
        """Close loaders, data and logs: no thread, shared memory or connection is left; what lies on disk stays."""
        self.data.close()
        if self._scalars is not None:
            self._scalars.close()

    def _task(self) -> Task:
        if self.plan.model == UNET3D:
            return Segmentation(self.plan, self.data, self.grid)
        return Regression(self.plan, self.data)

    def _epoch(self, tell: Tell) -> Epoch:
        """Train and judge until the end of the epoch at hand; its figures are then behind."""
        start = perf_counter() - self.progress.seconds
        training_loss = self._train(start, tell)
        self._marks = self._judge()
        judged = self.task.judgement(self._marks)
        epoch = Epoch(training_loss, judged.loss, judged.mae, perf_counter() - start, judged.dice)
        self.progress = Progress((*self.progress.epochs, epoch))
        return epoch

    def _train(self, start: float, tell: Tell) -> float:
        """Run the steps of the epoch that are left; return the mean loss of all of them over all groups."""
        self.learner.model.train()
        mean = LossMean(self.progress, group_size=self.grid.group_size)
        batches = iter(self.data.loader)
        if self._random is not None:
            self._random.set(self._device)
            self._random = None
        for step, (volumes, truth) in enumerate(batches, self.progress.steps + 1):
            loss = self.task.loss(self.learner.outputs(volumes), truth)
            self.learner.step(loss)
            mean.add(loss.item(), len(truth))
            if self._is_due(step):
                total, samples = mean.sums()
                seconds = perf_counter() - start
                self.progress = replace(self.progress, steps=step, seconds=seconds, loss=total, samples=samples)
                self._checkpoint(tell)
        total, samples = mean.sums()
        return total / samples

    def _is_due(self, step: int) -> bool:
        """Tell whether a checkpoint belongs behind a step; the last one has the epoch's."""
        every = self.plan.checkpoint_every
        return every > 0 and step % every == 0 and step < len(self.data.loader)

    @torch.no_grad()
    def _judge(self) -> Tensor:
        """Return the marks of all held-out samples."""
        self.learner.model.eval()
        noted: dict[int, Tensor] = {}
        order = iter(self.data.judged)
        for volumes, truth in self.data.judge:
            marks = self.task.marks(self.learner.outputs(volumes), truth).cpu()
            noted |= {next(order): row for row in marks}
        return mean_marks(noted, len(self.data.validation))

    def _result(self) -> TrainingResult:
        baseline, cache = self.task.baseline(self._marks), self.plan.cache
        epochs = self.progress.epochs
        return TrainingResult(
            targets=self.data.fields.targets,
            shape=self.data.shape,
            spatial=self.grid.spatial,
            training_samples=len(self.data.training),
            validation_samples=len(self.data.validation),
            mean_predictor_mae=baseline.mae,
            epochs=epochs,
            ranks=rank_reports(self.data.loader, self.grid),
            policy=None if cache is None else cache.policy,
            is_clairvoyant=cache is not None and cache.clairvoyant and len(epochs) > 1,
            dice_baseline=baseline.dice,
        )

    def _restore(self, saved: Checkpoint) -> None:
        """Put everything to where the checkpoint was taken."""
        check_same_data(self.data.digest, saved.data)
        self._warn(saved)
        if (longer := prolonged(saved.plan, self.plan)) and self.grid.rank == 0:
            warnings.warn(f"--resume: {longer}", RuntimeWarning, stacklevel=2)
        self.learner.load(saved.learner)
        self.data.loader.load_state_dict(saved.loader)
        self.progress, self._marks = saved.progress, saved.marks
        random = Randomness(saved.random, saved.device_random)
        random.set(self._device)
        # A loader draws from torch's generator when an epoch begins. That of an epoch under way has done so before.
        self._random = random if saved.progress.steps else None

    def _warn(self, saved: Checkpoint) -> None:
        """Say, as rank 0, what will differ from the run that was stopped."""
        found = small_differences(
            _dealing_of(saved),
            self._global_batch,
            samples=len(self.data.training),
            is_normalised=self.learner.is_normalised,
        )
        for difference in found if self.grid.rank == 0 else ():
            warnings.warn(f"--resume: {difference}; losses differ a little", RuntimeWarning, stacklevel=2)

    def _checkpoint(self, tell: Tell) -> None:
        """Write a checkpoint; where that fails the run goes on, with a warning, and the one before stays."""
        try:
            self._save(tell)
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def _save(self, tell: Tell) -> None:
        """Write a checkpoint, as rank 0: weights and generators are equal on all ranks."""
        if self.grid.rank != 0:
            return
        random = Randomness.now(self._device)
        Checkpoint(
            plan=self.plan,
            data=self.data.digest,
            groups=self.grid.groups,
            moments=self.data.moments,
            targets=self.data.fields.targets,
            scale=self.task.scale,
            progress=self.progress,
            learner=self.learner.state(),
            loader=self.data.loader.state_dict(),
            random=random.host,
            marks=self._marks,
            device_random=random.device,
        ).write(Path(self.plan.output))
        tell({"event": "checkpoint", "epochs": len(self.progress.epochs), "steps": self.progress.steps})


def _dealing_of(saved: Checkpoint) -> GlobalBatch:
    return GlobalBatch(saved.groups, saved.plan.optimisation.batch_size)
