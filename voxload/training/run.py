"""Run: one rank's training loop over blocks, from a plan to a result."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from voxload.errors import StorageError
from voxload.grid import ProcessGrid
from voxload.launch.devices import ON_HOST
from voxload.parallel.tournament.tournament import Tournament, Verdict
from voxload.training.checkpoint import Checkpoint, Randomness, read_together
from voxload.training.data import TRAINING, VALIDATION, Judged, TrainingData
from voxload.training.figures import LossMean, Progress, mean_marks, publish, rank_reports
from voxload.training.learner import Learner, on_host
from voxload.training.plan import LION, UNET3D, TrainingPlan
from voxload.training.population.rounds import forget_rounds, round_folder
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

_APART = 1_000_003
"""By which the seeds of trainers differ: the first one's is that of a run alone."""
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
    trainer
        Which of the plan's trainers this is a rank of.
    meeting
        torch's store of all trainers, where there are several.
    source
        Folder of the checkpoint to go on from, where that is not the output's own.

    Raises
    ------
    UsageError
        When plan, data, grid and, with ``resume``, checkpoint do not fit each other.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        grid: ProcessGrid,
        *,
        device: torch.device = ON_HOST,
        trainer: int = 0,
        meeting: Any = None,
        source: Path | None = None,
    ) -> None:
        self.plan = plan
        self.grid = grid
        self._global_batch = GlobalBatch(grid.groups, plan.optimisation.batch_size)
        saved = read_together(source or Path(plan.output), rank=grid.rank) if plan.resume else None
        if saved is not None:
            check_same_plan(saved.plan, plan)
            check_same_samples(_dealing_of(saved), self._global_batch)
        moments = None if saved is None else saved.moments
        generation = None if saved is None else saved.generation
        self.data = TrainingData(plan, grid, device=device, moments=moments, trainer=trainer, generation=generation)
        self.task = self._task()
        recipe = plan.optimisation
        torch.manual_seed(recipe.seed + _APART * trainer)
        self._planned = len(self.data.loader)
        steps = recipe.epochs * self._planned
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
        self._verdicts: tuple[Verdict, ...] = ()
        self._tournament: Tournament | None = None
        if plan.trainers > 1:
            words = {"trainers": plan.trainers, "trainer": trainer, "store": meeting, "seed": recipe.seed}
            self._tournament = Tournament(plan.tournament, **words)
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
            self._checkpoint_of_round(0, tell) if self._tournament is not None else self._save(tell)
        while len(self.progress.epochs) < self.plan.optimisation.epochs:
            epoch = self._epoch(tell)
            number = len(self.progress.epochs)
            if self.plan.prometheus:
                loaders = {TRAINING: self.data.loader, VALIDATION: self.data.judge.loader}
                publish(loaders, Path(self.plan.prometheus), grid=self.grid)
            if self._scalars is not None:
                self._scalars.add(number, epoch, rate=self.learner.rate)
            if self._tournament is None:
                self._checkpoint(tell)
            elif self._is_behind(number):
                self._checkpoint_of_round(len(self._verdicts), tell)
            tell({"event": "epoch", "number": number, **dataclasses.asdict(epoch)})
        return self._result()

    def weights(self) -> dict[str, Tensor]:
        """Return the network's weights under their own names, as one process would have them."""
        weights: dict[str, Tensor] = on_host(self.learner.network.state_dict())
        return weights

    def leave(self) -> None:
        """Tell other trainers that this one plays no more."""
        if self._tournament is not None:
            self._tournament.leave()

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
        self._marks = self._judge(self.data.judge)
        judged = self.task.judgement(self._marks)
        seconds, data = perf_counter() - start, self.data.training
        epoch = Epoch(training_loss, judged.loss, judged.mae, seconds, judged.dice, len(data), data.generation)
        self.progress = Progress((*self.progress.epochs, epoch))
        return epoch

    def _train(self, start: float, tell: Tell) -> float:
        """Run the steps of the epoch that are left; return the mean loss of all of them over all groups."""
        self.learner.model.train()
        mean = LossMean(self.progress, group_size=self.grid.group_size)
        batches = iter(self.data.loader)
        if self.plan.follow:
            number, behind = len(self.progress.epochs), self.progress.steps
            self.learner.begin_epoch(number, planned=self._planned, length=len(self.data.loader), behind=behind)
        if self._random is not None:
            self._random.set(self._device)
            self._random = None
        for step, (volumes, truth) in enumerate(batches, self.progress.steps + 1):
            loss = self.task.loss(self.learner.outputs(volumes), truth)
            self.learner.step(loss)
            mean.add(loss.item(), len(truth))
            is_round = self._is_round(step)
            if is_round or self._is_due(step):
                total, samples = mean.sums()
                seconds = perf_counter() - start
                self.progress = replace(self.progress, steps=step, seconds=seconds, loss=total, samples=samples)
                self._play(step, tell) if is_round else self._checkpoint(tell)
        total, samples = mean.sums()
        return total / samples

    def _is_due(self, step: int) -> bool:
        """Tell whether a checkpoint belongs behind a step; the last one has the epoch's."""
        every = self.plan.checkpoint_every
        return every > 0 and step % every == 0 and step < len(self.data.loader)

    def _is_round(self, step: int) -> bool:
        """Tell whether trainers meet behind a step of the epoch at hand."""
        behind = len(self.progress.epochs) * len(self.data.loader) + step
        return self._tournament is not None and behind % self.plan.tournament.every == 0

    def _is_behind(self, epochs: int) -> bool:
        """Tell whether the last round was played behind the last step of an epoch, whose end its checkpoint has."""
        return epochs * len(self.data.loader) % self.plan.tournament.every == 0

    def _play(self, step: int, tell: Tell) -> None:
        """Play the next round of the tournament, and write its checkpoint unless the epoch ends here."""
        contest = self.data.contest
        if self._tournament is None or contest is None:
            return
        rules, number = self.plan.tournament, len(self._verdicts) + 1
        tensors = self.learner.tensors(with_optimizer=rules.with_optimizer)
        random = Randomness.now(self._device)
        verdict = self._tournament.play(number, tensors, lambda: self.task.judgement(self._judge(contest)).loss)
        random.set(self._device)  # to judge draws seeds of loaders: as many as models came
        self.learner.model.train()
        self.learner.scale_rate(verdict.rate)
        self._verdicts = (*self._verdicts, verdict)
        tell({"event": "round", **dataclasses.asdict(verdict)})
        if step < len(self.data.loader):
            self._checkpoint_of_round(number, tell)

    @torch.no_grad()
    def _judge(self, judged: Judged) -> Tensor:
        """Return the marks of all samples that are judged by."""
        self.learner.model.eval()
        noted: dict[int, Tensor] = {}
        order = iter(judged.order)
        for volumes, truth in judged.loader:
            marks = self.task.marks(self.learner.outputs(volumes), truth).cpu()
            noted |= {next(order): row for row in marks}
        return mean_marks(noted, len(judged.data))

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
            # A cache is told how many epochs there are. Without one, the last epoch foresees another one, too.
            is_clairvoyant=self.plan.clairvoyant if cache is None else cache.clairvoyant and len(epochs) > 1,
            dice_baseline=baseline.dice,
            verdicts=self._verdicts,
        )

    def _restore(self, saved: Checkpoint) -> None:
        """Put everything to where the checkpoint was taken."""
        check_same_data(self.data.digest, saved.data)
        if (longer := prolonged(saved.plan, self.plan)) and self.grid.rank == 0:
            warnings.warn(f"--resume: {longer}", RuntimeWarning, stacklevel=2)
        self.learner.load(saved.learner)
        self.data.loader.load_state_dict(self._place_in(saved))
        self._warn(saved)
        self.progress, self._marks, self._verdicts = saved.progress, saved.marks, saved.verdicts
        random = Randomness(saved.random, saved.device_random)
        random.set(self._device)
        # A loader draws from torch's generator when an epoch begins. That of an epoch under way has done so before.
        self._random = random if saved.progress.steps else None

    def _place_in(self, saved: Checkpoint) -> Mapping[str, Any]:
        """Return where the loader is; of another trainer's checkpoint, that place among as many samples of its own."""
        if self.plan.trainers == 1 or Path(saved.plan.output).name == Path(self.plan.output).name:
            return saved.loader
        own = self.data.loader.state_dict()
        return {**saved.loader, "data": own["data"], "samples": own["samples"]}

    def _warn(self, saved: Checkpoint) -> None:
        """Say, as rank 0, what will differ from the run that was stopped."""
        found = small_differences(
            _dealing_of(saved),
            self._global_batch,
            samples=len(self.data.training),
            is_normalised=self.learner.is_normalised,
            is_voted=self.plan.optimisation.optimizer == LION,
        )
        for difference in found if self.grid.rank == 0 else ():
            warnings.warn(f"--resume: {difference}; losses differ a little", RuntimeWarning, stacklevel=2)

    def _checkpoint(self, tell: Tell) -> None:
        """Write a checkpoint; where that fails the run goes on, with a warning, and the one before stays."""
        try:
            self._save(tell)
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def _checkpoint_of_round(self, number: int, tell: Tell) -> None:
        """Write the checkpoint behind a round, and forget those that no trainer is behind any more."""
        folder = round_folder(self.plan.output, number)
        try:
            self._save(tell, folder)
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        if self.grid.rank == 0 and self._tournament is not None:
            forget_rounds(self.plan.output, before=self._tournament.slowest())

    def _save(self, tell: Tell, folder: Path | None = None) -> None:
        """Write a checkpoint, as rank 0: weights and generators are equal on all ranks."""
        learner = self.learner.state()
        if learner is None:
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
            learner=learner,
            loader=self.data.loader.state_dict(),
            random=random.host,
            marks=self._marks,
            device_random=random.device,
            verdicts=self._verdicts,
            generation=self.data.generation,
        ).write(folder or Path(self.plan.output))
        tell({"event": "checkpoint", "epochs": len(self.progress.epochs), "steps": self.progress.steps})


def _dealing_of(saved: Checkpoint) -> GlobalBatch:
    return GlobalBatch(saved.groups, saved.plan.optimisation.batch_size)
