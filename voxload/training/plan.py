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
from voxload.files.regular import parse_json
from voxload.launch.devices import HOST, check_device
from voxload.loader.cache import Cache
from voxload.parallel.lion.levels import levels_of
from voxload.parallel.tournament.tournament import Rules

COSMOFLOW, UNET3D = "cosmoflow", "unet3d"
"""Names of the networks: the first predicts targets of samples, the second a class for each of their voxels."""
DTYPES = ("float32", "float64")
"""What a run can compute in."""
ADAM, LION = "adam", "lion"
RATES = {ADAM: 2e-4, LION: 4e-5}
"""Names of the optimisers, and step sizes that suit them: Lion's steps are longer."""


@dataclass(frozen=True, slots=True)
class Optimisation:
    """How the weights are found."""

    epochs: int = 5
    """Passes over the training samples."""
    batch_size: int = 2
    """Samples of one sample group in one step."""
    learning_rate: float = 2e-4
    """The step size at its highest; `learner.rate_factor` says how it rises and falls."""
    dropout: float = 0.0
    """Share of the head's activations that are dropped in training; the U-Net has none."""
    seed: int = 0
    """Seed of the weights, the orders, the dropout and the split."""
    dtype: str = "float32"
    """Type of the weights and of all that is computed: one of `DTYPES`. The wide one is to compare runs by."""
    optimizer: str = ADAM
    """One of `RATES`."""
    lion_combine: str = "majority"
    """How the updates of sample groups become one, as `voxload.parallel.Lion` has it."""
    lion_bits: int = 0
    """Bits of a number of an update that is sent; 0 for as many as is usual."""
    lion_momentum: int = 0
    """Steps from one averaging of a tensor's momentum over the groups to the next; 0 for none."""

    def __post_init__(self) -> None:
        if self.optimizer not in RATES:
            raise UsageError("optimizer", found=repr(self.optimizer), expected=" or ".join(RATES))
        if self.optimizer != LION and (self.lion_combine, self.lion_bits, self.lion_momentum) != ("majority", 0, 0):
            raise UsageError(
                f"optimizer {self.optimizer}",
                found=f"lion_combine={self.lion_combine!r}, lion_bits={self.lion_bits}, "
                f"lion_momentum={self.lion_momentum}",
                expected="none of Lion's options",
                remedy="say --optimizer lion as well, or leave them out",
            )
        if self.optimizer == LION:
            levels_of(self.lion_combine, self.lion_bits or None, groups=1)  # refuses what there is not
        if self.dtype not in DTYPES:
            raise UsageError("dtype", found=repr(self.dtype), expected=" or ".join(DTYPES))
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
    """Folder for the report, the weights and the checkpoint."""
    model: str = COSMOFLOW
    """Name of the network."""
    variant: str = ""
    """Name of its variant; empty for the network's first."""
    widths: tuple[int, ...] = ()
    """Channels of the U-Net's levels, from the first down to the bottom; empty for the variant's own."""
    dataset: str = ""
    """Dataset to train on; empty where the catalogue has one, or one besides the labels."""
    labels: str = ""
    """Dataset with a class for each voxel, for the U-Net."""
    classes: int = 0
    """Classes that the U-Net tells apart, the background, 0, among them."""
    targets: tuple[str, ...] = ()
    """Targets that CosmoFlow predicts; empty for all of the catalogue."""
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
    tensorboard: str = ""
    """Folder for TensorBoard's logs; empty for none."""
    checkpoint_every: int = 0
    """Steps of an epoch between checkpoints inside it; 0 for one at each epoch's end only."""
    resume: bool = False
    """Whether to go on from the checkpoint in `output`."""
    allow_outside: bool = False
    """Whether the catalogue's paths may lead out of its folder."""
    device: str = HOST
    """What each rank computes on, one of `voxload.launch.devices.DEVICES`."""
    patch: tuple[int, ...] = ()
    """Extents (d, h, w) of the patches that the U-Net is trained on; empty for whole samples."""
    patches: int = 4
    """Patches of each sample in an epoch, at random places; those held out are all of a grid."""
    around_classes: bool = False
    """Whether patches lie around voxels of a class, each class as often; else anywhere."""
    layers: dict[str, str] = field(default_factory=dict)
    """What layers use the axes of the grid for, as `voxload.engine.SplitPlan.of` takes it; those left out, space."""
    recompute: tuple[str, ...] = ()
    """Paths of modules that keep nothing for the backward pass, and run again in it."""
    follow: bool = False
    """Whether samples that are appended to the catalogue are trained on from the next epoch on."""
    trainers: int = 1
    """Trainers, each of which learns from a part of the samples; more than one play a tournament."""
    tournament: Rules = field(default_factory=Rules)
    """How they play it."""
    clairvoyant: bool = True
    """Whether loaders use orders beyond the epoch at hand: False reads no batch before its epoch begins, and needs a
    cache that is told so too."""

    def __post_init__(self) -> None:
        check_device(self.device)
        self._check_patches()
        if self.checkpoint_every < 0:
            raise UsageError("checkpoints", found=f"every {self.checkpoint_every} steps", expected="0 or more")
        if self.follow and self.trainers > 1:
            raise UsageError(
                "follow", found=f"{self.trainers} trainers, whose parts of the samples are fixed", expected="one"
            )
        if self.trainers < 1 or (self.trainers > 1 and self.checkpoint_every):
            raise UsageError(
                "trainers",
                found=f"{self.trainers}, checkpoints every {self.checkpoint_every} steps",
                expected="1 or more, whose checkpoints lie behind the rounds of their tournament",
                remedy="leave out --checkpoint-every, and choose --tournament-every",
            )
        if self.model == UNET3D:
            self._check_segmentation()
        elif self.model != COSMOFLOW:
            raise UsageError("model", found=repr(self.model), expected=f"{COSMOFLOW!r} or {UNET3D!r}")
        elif self.labels or self.classes or self.widths:
            found = f"labels {self.labels!r}, {self.classes} classes, widths {self.widths}"
            raise UsageError(self.model, found=found, expected="none of them", remedy=f"they are the {UNET3D}'s")

    def _check_patches(self) -> None:
        """Refuse patches of a network that predicts one set of numbers for a sample, and what are none."""
        is_one = not self.patch or (len(self.patch) == len(self.spatial) and min(self.patch) > 0)
        if not is_one or self.patches < 1 or (self.patch and self.model != UNET3D):
            raise UsageError(
                "patches",
                found=f"{self.patches} of {self.patch} for {self.model}",
                expected=f"one or more of three extents, for the {UNET3D}",
                remedy="leave out --patch" if self.model != UNET3D else "say for example --patch 64,64,64 --patches 4",
            )

    def _check_segmentation(self) -> None:
        """Refuse what a network that tells voxels apart cannot be trained by."""
        if not self.labels or self.classes < 2:
            raise UsageError(
                self.model,
                found=f"labels {self.labels!r} of {self.classes} classes",
                expected="a dataset of labels, and 2 classes or more with the background",
                remedy="say for example --labels labels --classes 2",
            )
        if self.targets:
            raise UsageError(self.model, found=f"targets {list(self.targets)}", expected="labels, and no targets")

    def to_json(self) -> str:
        """Return the plan as JSON; paths become text."""
        return json.dumps(dataclasses.asdict(self), default=os.fspath)

    @classmethod
    def from_json(cls, text: str) -> TrainingPlan:
        """Return the plan that `to_json` wrote; raises DataError on anything else."""
        try:
            values: dict[str, Any] = parse_json(text)
            optimisation = Optimisation(**values.pop("optimisation"))
            cache = _cache_of(values.pop("cache"))
            rules = Rules(**values.pop("tournament", {}))
            lists: dict[str, Any] = {name: tuple(values.pop(name)) for name in ("spatial", "targets", "widths")}
            for name in ("patch", "recompute"):  # which checkpoints of before do not know
                lists[name] = tuple(values.pop(name, ()))
            return cls(**values, **lists, optimisation=optimisation, cache=cache, tournament=rules)
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
