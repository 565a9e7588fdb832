"""Run: one rank's training loop over blocks, from a plan to a result."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from voxload.catalog import Catalog
from voxload.dataset import VolumeDataset
from voxload.engine import shard
from voxload.errors import StorageError, UsageError
from voxload.grid import ProcessGrid
from voxload.loader.cache import Cache
from voxload.loader.dataloader import DataLoader
from voxload.loader.prometheus import write_textfile
from voxload.loader.sampler import GroupSampler
from voxload.models import CosmoFlow
from voxload.training.plan import TrainingPlan
from voxload.training.result import Epoch, RankReport, TrainingResult
from voxload.training.schedule import rate_factor
from voxload.training.shares import TRAINING, VALIDATION, shared_out
from voxload.training.split import split_samples
from voxload.training.statistics import TargetScale, input_transform

T = TypeVar("T")


class Run:
    """A network, its data and its optimiser on one rank; every rank of the job makes one, executes and closes it.

    Parameters
    ----------
    plan
        What to train.
    grid
        The ranks; torch.distributed is initialised when there are several.

    Raises
    ------
    UsageError
        When plan, data and grid do not fit each other.
    """

    def __init__(self, plan: TrainingPlan, grid: ProcessGrid) -> None:
        self.plan = plan
        self.grid = grid
        catalog = Catalog.read(plan.catalog)
        self.targets = plan.targets or catalog.target_names
        if not self.targets:
            raise UsageError(f"catalogue {plan.catalog}", found="no target column", expected="something to predict")
        optimisation = plan.optimisation
        self.split = split_samples(catalog.samples, fraction=plan.validation, seed=optimisation.seed)
        self.training = self._data(catalog.select(self.split.training))
        self.validation = self._data(catalog.select(self.split.validation))
        self.training_targets = _all_targets(self.training)
        self.scale = TargetScale.of(self.training_targets)
        transform = input_transform(self.training, batch_size=optimisation.batch_size, log1p=plan.log1p)
        # Over groups also where there is one process: the same plan then sees the same order on every grid.
        order = GroupSampler(self.training, grid, shuffle=True, seed=optimisation.seed)
        caches = self._caches()
        size = optimisation.batch_size
        self.loader = DataLoader(self.training, size, sampler=order, transform=transform, cache=caches[0])
        self.judge = DataLoader(self.validation, size, transform=transform, cache=caches[1])
        # Not shuffled, and asked once: to iterate a sampler beside its loader would tell it of epochs there are not.
        self.judged = tuple(self.judge.sampler)
        torch.manual_seed(optimisation.seed)
        self.network = self._network()
        sharded = shard(self.network, grid)
        self.model: nn.Module = DistributedDataParallel(sharded) if grid.world_size > 1 else sharded
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=optimisation.learning_rate)
        steps = optimisation.epochs * len(self.loader)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, lambda step: rate_factor(step, steps))

    def execute(self, on_epoch: Callable[[dict[str, Any]], None]) -> TrainingResult:
        """Train all epochs and return the result, equal on every rank; `on_epoch` sees each epoch's figures."""
        epochs = []
        for number in range(self.plan.optimisation.epochs):
            start = perf_counter()
            training_loss = self._train()
            validation_loss, mae = self._validate()
            epoch = Epoch(training_loss, validation_loss, tuple(mae.tolist()), perf_counter() - start)
            epochs.append(epoch)
            if self.plan.prometheus:
                self._publish(Path(self.plan.prometheus))
            on_epoch({"number": number + 1, **dataclasses.asdict(epoch)})
        truth = _all_targets(self.validation)
        of_mean = (truth - self.training_targets.mean(0)).abs().mean(0)
        return TrainingResult(
            targets=self.targets,
            shape=self.training.volume_shape(0),
            spatial=self.grid.spatial,
            training_samples=len(self.training),
            validation_samples=len(self.validation),
            mean_predictor_mae=tuple(of_mean.tolist()),
            epochs=tuple(epochs),
            ranks=tuple(self._reports()),
            policy=None if self.plan.cache is None else self.plan.cache.policy,
            is_clairvoyant=self.plan.cache is not None and self.plan.cache.clairvoyant and len(epochs) > 1,
        )

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the network's weights under their own names, as one process would have them."""
        return self.network.state_dict()

    def close(self) -> None:
        """Close loaders and data: no thread, shared memory or connection is left, and what lies on disk stays."""
        for part in (self.loader, self.judge, self.training, self.validation):
            part.close()

    def _caches(self) -> tuple[Cache | None, Cache | None]:
        """Return the caches of the training and of the validation loader."""
        if self.plan.cache is None:
            return None, None
        return shared_out(
            self.plan.cache,
            training=len(self.training),
            validation=len(self.validation),
            epochs=self.plan.optimisation.epochs,
        )

    def _data(self, catalog: Catalog) -> VolumeDataset:
        fields = {"x": self.plan.dataset} if self.plan.dataset else None
        return VolumeDataset(catalog, fields=fields, targets=self.targets, grid=self.grid)

    def _network(self) -> nn.Module:
        """Return the plan's network for this data; equal on every rank, because the seed is."""
        if self.plan.model != "cosmoflow":
            raise UsageError("model", found=repr(self.plan.model), expected="'cosmoflow'")
        depth, height, width = self.training.volume_shape(0)
        if not depth == height == width:
            raise UsageError("CosmoFlow", found=f"samples of {(depth, height, width)}", expected="cubes")
        channels = self.training.layout(0)[0].shape[0]
        return CosmoFlow(depth, channels, len(self.targets), dropout=self.plan.optimisation.dropout)

    def _train(self) -> float:
        """Run one epoch of steps; return the mean loss over all groups."""
        self.model.train()
        total = torch.zeros(2, dtype=torch.float64)
        for volumes, targets in self.loader:
            loss = nn.functional.mse_loss(self.model(volumes), self.scale.scaled(targets))
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            self.optimiser.step()
            self.schedule.step()
            total += torch.tensor([loss.item() * len(targets), len(targets)], dtype=torch.float64)
        if dist.is_initialized():
            dist.all_reduce(total)
        return float(total[0] / total[1])

    @torch.no_grad()
    def _validate(self) -> tuple[float, torch.Tensor]:
        """Return the loss and each target's mean absolute error on the held-out samples."""
        self.model.eval()
        outputs: dict[int, torch.Tensor] = {}
        order = iter(self.judged)
        for volumes, _ in self.judge:
            outputs |= {next(order): output for output in self.model(volumes)}
        # Groups of unequal length repeat samples, and the ranks of a group agree: each sample counts once.
        merged = {index: output for part in self._gathered(outputs) for index, output in part.items()}
        stacked = torch.stack([merged[index] for index in range(len(self.validation))])
        truth = _all_targets(self.validation)
        loss = nn.functional.mse_loss(stacked, self.scale.scaled(truth))
        return float(loss), (self.scale.original(stacked) - truth).abs().mean(0)

    def _reports(self) -> list[RankReport]:
        """Return every rank's figures of the training loader, on every rank."""
        stats = self.loader.stats()
        own = RankReport(
            rank=self.grid.rank,
            group=self.grid.group,
            coords=self.grid.coords,
            bytes_needed=stats.bytes_needed,
            bytes_read=stats.bytes_read,
            read_amplification=stats.read_amplification,
            decode_amplification=stats.decode_amplification,
            seconds_stalled=stats.seconds_stalled,
            accelerator_utilisation=stats.accelerator_utilisation,
            steps=tuple((step.asked, step.stall, step.compute) for step in stats.steps),
            sources=stats.sources,
        )
        return self._gathered(own)

    def _publish(self, path: Path) -> None:
        """Write all ranks' figures for Prometheus, as rank 0; where that fails the run goes on, with a warning."""
        own = [
            ({"rank": str(self.grid.rank), "loader": name}, dataclasses.replace(loader.stats(), steps=()))
            for name, loader in ((TRAINING, self.loader), (VALIDATION, self.judge))
        ]
        gathered = self._gathered(own)
        if self.grid.rank == 0:
            try:
                write_textfile(path, [row for rows in gathered for row in rows])
            except StorageError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def _gathered(self, own: T) -> list[T]:
        """Return what every rank gave, by rank."""
        if not dist.is_initialized():
            return [own]
        gathered: list[Any] = [None] * self.grid.world_size
        dist.all_gather_object(gathered, own)
        return gathered


def _all_targets(data: VolumeDataset) -> torch.Tensor:
    """Return the targets of all samples, ``(N, T)``; they come from the catalogue, so no volume is opened."""
    return torch.stack([values for index in range(len(data)) if (values := data.read_targets(index)) is not None])
