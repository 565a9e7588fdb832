"""Checkpoint: the file that a run goes on from, the states of torch's generators in it."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voxload.errors import DataError, InternalError, NotFoundError, StorageError
from voxload.files.atomic import remove_partials, replacing
from voxload.files.regular import check_regular
from voxload.launch.collectives import broadcast_from_first
from voxload.launch.devices import HOST
from voxload.parallel.tournament.tournament import Verdict
from voxload.training.figures import Progress
from voxload.training.normalisation import Moments, TargetScale
from voxload.training.plan import TrainingPlan
from voxload.training.result import Epoch


@dataclass(frozen=True, slots=True)
class Randomness:
    """States of torch's default generators."""

    host: Tensor
    """Of the host's: orders, and what is drawn there."""
    device: Tensor
    """Of the device's, such as for dropout there; empty where the host computes."""

    @classmethod
    def now(cls, device: torch.device) -> Randomness:
        """Return the states as they are."""
        if device.type == HOST:
            return cls(torch.get_rng_state(), torch.zeros(0, dtype=torch.uint8))
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(device))

    def set(self, device: torch.device) -> None:
        """Go on from here; a device's generator stays where it is if this state is of a run on another kind."""
        torch.set_rng_state(self.host)
        if device.type != HOST and len(self.device):
            torch.cuda.set_rng_state(self.device, device)


CHECKPOINT = "checkpoint.pt"
"""File name in a run's output folder."""
FORMAT = 1
"""Number of this form of a checkpoint."""
_DAMAGE = (pickle.UnpicklingError, EOFError, RuntimeError, ValueError, TypeError, KeyError, AttributeError)
"""What torch, and we, raise at a file that is no checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place in a run: all that decides how it goes on; holds for any grid of ranks."""

    plan: TrainingPlan
    """What is trained."""
    data: str
    """Digest of samples and targets, wherever they are stored."""
    groups: int
    """Sample groups that trained."""
    moments: Moments
    """What inputs are standardised by."""
    targets: tuple[str, ...]
    """What a regression predicts; empty for a segmentation."""
    scale: TargetScale | None
    """Maps a regression's outputs to the targets' own units; None for a segmentation."""
    progress: Progress
    """Epochs and steps that are behind."""
    learner: Mapping[str, Any]
    """Weights of the ordinary network (``network``), optimiser and schedule."""
    loader: Mapping[str, Any]
    """Where the training loader is."""
    random: Tensor
    """State of torch's generator."""
    marks: Tensor
    """Those of the held-out samples at the last epoch's end; empty before."""
    device_random: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.uint8))
    """State of the generator of the device that computed; empty for the host, and in what older versions wrote."""
    verdicts: tuple[Verdict, ...] = ()
    """What was decided in the rounds of a tournament."""
    generation: int | None = None
    """Of a catalogue that is followed, that which the run began with: what is held out, and scaled by, is of it."""

    def values(self) -> dict[str, Any]:
        """Return the checkpoint as numbers, text, tensors, and mappings and lists of these."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        values |= {name: dataclasses.asdict(values[name]) for name in ("moments", "progress")}
        values["scale"] = None if self.scale is None else dataclasses.asdict(self.scale)
        values["verdicts"] = [dataclasses.asdict(each) for each in self.verdicts]
        return values | {"version": FORMAT, "plan": self.plan.to_json()}

    def write(self, folder: Path) -> None:
        """Put the checkpoint into `folder`, in the place of the one before; it appears whole or not at all.

        What writers that were killed left behind is removed: one run at a time writes into a folder. Raises
        StorageError when it cannot be written; the one before then stays.
        """
        path, values = folder / CHECKPOINT, self.values()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_partials(path)
            with replacing(path) as temporary:
                torch.save(values, temporary)
        except (OSError, RuntimeError) as error:  # torch's own writer raises the latter when a disk is full
            raise StorageError(
                f"checkpoint {path}",
                found=(str(error) or type(error).__name__).splitlines()[0],
                remedy="make room, or choose another --output",
            ) from error

    @classmethod
    def read(cls, folder: Path) -> Checkpoint:
        """Return the checkpoint in `folder`.

        Raises
        ------
        NotFoundError
            When there is none.
        DataError
            When it is damaged, or of another format.
        """
        path = folder / CHECKPOINT
        check_regular(path)
        try:
            values = torch.load(path, map_location="cpu", weights_only=True)
            return cls(**_built(values))
        except FileNotFoundError as error:
            raise NotFoundError(
                f"checkpoint {path}", found="no such file", remedy="name the run's --output, or start without --resume"
            ) from error
        except (*_DAMAGE, OSError) as error:
            raise DataError(
                f"checkpoint {path}",
                found=what_is_wrong(error),
                expected=f"what voxload train wrote, format {FORMAT}",
                remedy="restore it, or start without --resume",
            ) from error


def what_is_wrong(error: BaseException) -> str:
    """Say what is wrong with a file that is no checkpoint.

    Of one that holds more than numbers and text, torch says how its protection is switched off: that is no advice about
    a file of which nothing is known, and is not passed on.
    """
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
        return "a pickle of more than tensors, numbers and text, or a damaged one, of which nothing was run"
    return (str(error) or type(error).__name__).splitlines()[0]


def read_together(folder: Path, *, rank: int) -> Checkpoint:
    """Return the checkpoint in `folder` of rank 0, on every rank; all raise what it raises.

    The others hear it in numbers, text and tensors, never as a pickle. Raises InternalError at anything else.
    """
    found: list[Checkpoint] = []

    def read() -> dict[str, Any]:
        found.append(Checkpoint.read(folder))
        return found[0].values()

    values = broadcast_from_first(read)
    if rank == 0:
        return found[0]
    try:
        return Checkpoint(**_built(values))
    except _DAMAGE as error:
        raise InternalError(
            f"checkpoint {folder}", found=f"rank 0 told of it: {error}", remedy="run one voxload on all ranks"
        ) from error


def _built(values: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a checkpoint from what was written of them."""
    if values.pop("version") != FORMAT:
        raise ValueError("another format")
    progress, moments, scale, plan = (values.pop(name) for name in ("progress", "moments", "scale", "plan"))
    epochs = tuple(Epoch(**row) for row in progress.pop("epochs"))
    values["verdicts"] = tuple(Verdict(**each) for each in values.pop("verdicts", ()))
    figures = {"progress": Progress(**progress, epochs=epochs), "moments": Moments(**moments)}
    figures["scale"] = None if scale is None else TargetScale(**scale)
    return {**values, **figures, "plan": TrainingPlan.from_json(plan)}
