"""TrainingResult: what a run found, as plain values that travel from its ranks as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from voxload.errors import DataError
from voxload.files.regular import parse_json
from voxload.loader.stats import sources_as_dict
from voxload.parallel.tournament.tournament import Verdict
from voxload.prefetch.meter import Traffic

WEIGHTS = "model.pt"
"""File name of the trained weights in an output folder."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch, over all ranks."""

    training_loss: float
    """The task's loss while training: mean squared error, or cross-entropy and Dice loss."""
    validation_loss: float
    """The same on the held-out samples."""
    validation_mae: tuple[float, ...]
    """Mean absolute error on the held-out samples, one per target; empty for a segmentation."""
    seconds: float
    """Duration with validation."""
    validation_dice: tuple[float, ...] = ()
    """Mean Dice of the held-out volumes, one per foreground class; empty for a regression."""
    samples: int = 0
    """Samples that were trained on, of all groups; 0 in what older versions wrote."""
    generation: int | None = None
    """That of the catalogue, where it is followed."""

    @property
    def mean_dice(self) -> float:
        """Mean of `validation_dice` over the foreground classes, each of one weight."""
        return fmean(self.validation_dice)


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank's training loader delivered and read."""

    rank: int
    """The rank."""
    group: int
    """Its sample group."""
    coords: tuple[int, int, int]
    """Its (d, h, w) place in the group."""
    bytes_needed: int
    """Bytes of the blocks delivered."""
    bytes_read: int
    """Bytes asked of the storage."""
    read_amplification: float
    """Bytes read over bytes needed."""
    decode_amplification: float
    """Bytes decoded over bytes needed."""
    seconds_stalled: float
    """Time spent waiting for data."""
    accelerator_utilisation: float
    """Compute over compute and stall."""
    steps: tuple[tuple[float, float, float], ...]
    """(asked, stall, compute) of each step, in seconds."""
    sources: Mapping[str, Traffic] = field(default_factory=dict)
    """What came from where, by kind of place: ``storage``, ``memory``, ``disk``, ``peer``; empty without a cache."""


@dataclass(frozen=True, slots=True)
class DiceBaseline:
    """Dice on the held-out volumes without having learnt anything, which a segmentation is compared with."""

    classes: tuple[int, ...]
    """The foreground classes."""
    chance_dice: tuple[float, ...]
    """Of saying a class at random, as often as it is in all volumes: where each has as much of it, just that share."""
    everywhere_dice: tuple[float, ...]
    """Of saying that class of every voxel, one per class."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """One run, either of a regression or of a segmentation."""

    targets: tuple[str, ...]
    """Names of the targets; empty for a segmentation."""
    shape: tuple[int, int, int]
    """Extents (D, H, W) of the samples."""
    spatial: tuple[int, int, int]
    """Blocks along (d, h, w)."""
    training_samples: int
    """Samples trained on."""
    validation_samples: int
    """Samples held out."""
    mean_predictor_mae: tuple[float, ...]
    """Error of predicting the training samples' mean, on the held-out samples, one per target."""
    epochs: tuple[Epoch, ...]
    """In order, with those before the run was resumed."""
    ranks: tuple[RankReport, ...]
    """In order; since the run was started or, last, resumed."""
    policy: str | None = None
    """Who kept which block, one of `voxload.prefetch.policies.NAMES`; None without a cache."""
    is_clairvoyant: bool = False
    """Whether orders beyond the epoch at hand were used, which some benchmarks forbid: by a cache, to choose what it
    keeps and fetches, or without one, to read the first batches of the next epoch before it begins."""
    dice_baseline: DiceBaseline | None = None
    """What a segmentation is compared with; None for a regression."""
    verdicts: tuple[Verdict, ...] = ()
    """What a trainer decided in the rounds of a tournament, in order."""

    @property
    def mae_ratio(self) -> tuple[float, ...]:
        """Last epoch's error over the mean predictor's, one per target; 1 has learnt nothing."""
        pairs = zip(self.epochs[-1].validation_mae, self.mean_predictor_mae, strict=True)
        return tuple(mae / of_mean for mae, of_mean in pairs)

    def to_json(self) -> str:
        """Return the result as JSON, derived figures included."""
        values = dataclasses.asdict(self) | {"mae_ratio": self.mae_ratio}
        for row, rank in zip(values["ranks"], self.ranks, strict=True):
            row["sources"] = sources_as_dict(rank.sources)
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> TrainingResult:
        """Return the result that `to_json` wrote; raises DataError on anything else."""
        try:
            values: dict[str, Any] = parse_json(text)
            del values["mae_ratio"]
            epochs = tuple(Epoch(**_all_tupled(row)) for row in values.pop("epochs"))
            ranks = tuple(map(_rank_report, values.pop("ranks")))
            dice = values.pop("dice_baseline")
            baseline = None if dice is None else DiceBaseline(**_all_tupled(dice))
            verdicts = tuple(Verdict(**row) for row in values.pop("verdicts", ()))
            words: dict[str, Any] = {"epochs": epochs, "ranks": ranks, "dice_baseline": baseline, "verdicts": verdicts}
            return cls(**_all_tupled(values), **words)
        except (ValueError, TypeError, KeyError) as error:
            raise DataError("training result", found=str(error), expected="JSON as TrainingResult.to_json") from error


def _rank_report(row: dict[str, Any]) -> RankReport:
    """Return one rank's report, without what is derived."""
    sources = {
        kind: Traffic(**{name: value for name, value in figures.items() if name != "bandwidth"})
        for kind, figures in row["sources"].items()
    }
    changes = {"coords": tuple(row["coords"]), "steps": tuple(map(tuple, row["steps"])), "sources": sources}
    return RankReport(**{**row, **changes})


def _all_tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with tuples in the place of JSON's lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
