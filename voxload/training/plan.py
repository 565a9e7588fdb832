"""TrainingPlan: all that a training run is told, as plain values that travel to its ranks as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voxload.cache.peer.tls import Tls
from voxload.errors import DataError, UsageError
from voxload.loader.cache import Cache


@dataclass(frozen=True, slots=True)
class Optimisation:
    """How the weights are found."""

    epochs: int = 5
    """Passes over the training samples."""
    batch_size: int = 2
    """Samples of one sample group in one step."""
    learning_rate: float = 2e-4
    """Adam's step size at its highest; `schedule.rate_factor` says how it rises and falls."""
    dropout: float = 0.5
    """Share of the head's activations that are dropped in training."""
    seed: int = 0
    """Seed of the weights, the orders, the dropout and the split."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0 or not 0 <= self.dropout < 1:
            raise UsageError(
                "training",
                found=f"{self.epochs} epochs, batches of {self.batch_size}, rate {self.learning_rate}, "
                f"dropout {self.dropout}",
                expected="1 epoch or more, batches of 1 or more, a positive rate, dropout in [0, 1)",
            )


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """One training run."""

    catalog: str
    """Path of the catalogue."""
    output: str
    """Folder for the report and the weights."""
    model: str = "cosmoflow"
    """Name of the network."""
    dataset: str = ""
    """Dataset to train on; empty where the catalogue has one."""
    targets: tuple[str, ...] = ()
    """Targets to predict; empty for all of the catalogue."""
    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks along (d, h, w)."""
    validation: float = 0.125
    """Share of the samples that is held out."""
    log1p: bool = True
    """Whether voxels are replaced by log(1 + x) before they are standardised."""
    optimisation: Optimisation = field(default_factory=Optimisation)
    """How the weights are found."""
    cache: Cache | None = None
    """Room for blocks on every node, for training and held-out samples together (see `shares`); None for none. The
    number of epochs in it is not used: that of `optimisation` is."""
    prometheus: str = ""
    """File that all ranks' figures are written to at each epoch's end; empty for none."""

    def to_json(self) -> str:
        """Return the plan as JSON; paths become text."""
        return json.dumps(dataclasses.asdict(self), default=os.fspath)

    @classmethod
    def from_json(cls, text: str) -> TrainingPlan:
        """Return the plan that `to_json` wrote; raises DataError on anything else."""
        try:
            values: dict[str, Any] = json.loads(text)
            optimisation = Optimisation(**values.pop("optimisation"))
            spatial, targets = tuple(values.pop("spatial")), tuple(values.pop("targets"))
            cache = _cache_of(values.pop("cache"))
            return cls(**values, spatial=spatial, targets=targets, optimisation=optimisation, cache=cache)
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                "training plan", found=str(error), expected="JSON as TrainingPlan.to_json writes"
            ) from error

    @property
    def report_path(self) -> Path:
        """Where the result of the run is written."""
        return Path(self.output) / "result.json"


def _cache_of(values: dict[str, Any] | None) -> Cache | None:
    """Return what `dataclasses.asdict` took apart."""
    if values is None:
        return None
    tls = values.pop("tls")
    if tls is not None:
        tls = Tls(**{**tls, **{name: Path(tls[name]) for name in ("certificate", "key", "roots")}})
    return Cache(**values, tls=tls)
