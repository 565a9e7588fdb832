"""Trained: what a checkpoint says of a network, and the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine import shard
from voxload.errors import DataError, InternalError, NotFoundError, UsageError
from voxload.files.regular import check_regular
from voxload.grid import ProcessGrid
from voxload.inference.plan import InferencePlan
from voxload.launch.collectives import broadcast_from_first
from voxload.models import CosmoFlow, UNet3D
from voxload.training.checkpoint import CHECKPOINT, FORMAT, Checkpoint, what_is_wrong
from voxload.training.normalisation import Moments, TargetScale
from voxload.training.plan import UNET3D, TrainingPlan

Extents = tuple[int, int, int]
"""Of a sample, (D, H, W), in voxels."""


@dataclass(frozen=True, slots=True)
class Trained:
    """All that predictions need of a run; the same for every grid."""

    plan: TrainingPlan
    """What was trained."""
    moments: Moments
    """What inputs are standardised by."""
    weights: Mapping[str, Tensor]
    """Of the ordinary, unsplit network."""
    targets: tuple[str, ...] = ()
    """What a regression predicts."""
    scale: TargetScale | None = None
    """Maps a regression's outputs to the targets' own units; None for a segmentation."""

    @classmethod
    def read(cls, plan: InferencePlan) -> Trained:
        """Return what the checkpoint says.

        Raises
        ------
        NotFoundError
            When there is no such file.
        UsageError
            When the file is of another kind.
        DataError
            When the checkpoint is damaged.
        """
        saved = _checkpoint(Path(plan.checkpoint))
        return cls(saved.plan, saved.moments, saved.learner["network"], saved.targets, saved.scale)

    @property
    def dtype(self) -> torch.dtype:
        """Type that the network computes in."""
        found: torch.dtype = getattr(torch, self.plan.optimisation.dtype)
        return found

    @property
    def channels(self) -> int:
        """Channels of the inputs."""
        return len(self.moments.mean)

    def networks(
        self, grid: ProcessGrid, extents: Iterable[Extents], *, device: torch.device
    ) -> dict[Extents, nn.Module]:
        """Return the network on a device, split over `grid`, for each extents of samples; all ranks call it together.

        Raises UsageError on every rank, before anything is sent, when it cannot be.
        """
        split: dict[Extents, nn.Module] = {}
        network: nn.Module | None = None
        for shape in extents:
            # A U-Net is the same for all extents; of CosmoFlow there is one for each size of cube.
            if network is None or self.plan.model != UNET3D:
                network = self._network(shape).to(device)
            if isinstance(network, UNet3D):
                _check_halvings(network, shape)
            split[shape] = shard(network, grid, shape=shape).eval()
        return split

    def _network(self, shape: Extents) -> nn.Module:
        """Return the ordinary network for samples of these extents, with its weights."""
        network = self._unet() if self.plan.model == UNET3D else self._cosmoflow(shape)
        network = network.to(self.dtype)  # first: weights are rounded to the type of those in whose place they come
        try:
            network.load_state_dict(self.weights)
        except RuntimeError as error:
            raise UsageError(
                self.plan.model,
                found=f"samples of {shape}, for which its weights do not fit",
                expected="extents of the samples that it was trained on",
                remedy="convert to those extents, or name another checkpoint",
            ) from error
        return network.eval()

    def _unet(self) -> nn.Module:
        plan = self.plan
        return UNet3D(self.channels, plan.classes, widths=plan.widths or None, **self._variant())

    def _cosmoflow(self, shape: Extents) -> nn.Module:
        if len(set(shape)) > 1:
            raise UsageError("CosmoFlow", found=f"samples of {shape}", expected="cubes")
        return CosmoFlow(shape[0], self.channels, len(self.targets), **self._variant())

    def _variant(self) -> dict[str, Any]:
        return {"variant": self.plan.variant} if self.plan.variant else {}


def read_together(plan: InferencePlan, grid: ProcessGrid) -> Trained:
    """Return what rank 0 reads, on every rank; all raise what it raises. The optimiser's part does not travel.

    The others hear it in numbers, text and tensors, never as a pickle. Raises InternalError at anything else.
    """
    found: list[Trained] = []

    def read() -> dict[str, Any]:
        one = Trained.read(plan)
        found.append(one)
        scale = None if one.scale is None else asdict(one.scale)
        told = {"plan": one.plan.to_json(), "moments": asdict(one.moments), "targets": one.targets, "scale": scale}
        return told | {"weights": one.weights}

    values = broadcast_from_first(read)
    if grid.rank == 0:
        return found[0]
    try:
        moments, weights = Moments(**values["moments"]), values["weights"]
        scale = None if values["scale"] is None else TargetScale(**values["scale"])
        return Trained(TrainingPlan.from_json(values["plan"]), moments, weights, values["targets"], scale)
    except (ValueError, TypeError, KeyError) as error:
        raise InternalError(
            plan.checkpoint, found=f"rank 0 told of it: {error}", remedy="run one voxload on all ranks"
        ) from error


def _checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`, a file or its folder."""
    file = path / CHECKPOINT if path.is_dir() else path
    subject, remedy = f"--checkpoint {file}", f"name the --output of voxload train, or the {CHECKPOINT} in it"
    check_regular(file)
    if not file.is_file():
        raise NotFoundError(subject, found="no such file", remedy=remedy)
    if file.name != CHECKPOINT:
        raise UsageError(subject, found="a file of another name", expected=CHECKPOINT, remedy=remedy)
    try:
        return Checkpoint.read(file.parent)
    except DataError as error:
        raise DataError(
            subject,
            found=what_is_wrong(error.__cause__ or error),
            expected=f"what voxload train wrote, format {FORMAT}",
            remedy="restore it, or name another",
        ) from error


def _check_halvings(network: UNet3D, shape: Sequence[int]) -> None:
    """Refuse extents that the U-Net cannot halve, or halves down to a single voxel, which is not normalised."""
    multiple = network.input_multiple
    if any(extent % multiple for extent in shape) or max(shape) == multiple:
        raise UsageError(
            "UNet3D",
            found=f"samples of {tuple(shape)}",
            expected=f"multiples of {multiple}, and more than one of them along some axis",
            remedy="convert to other extents",
        )
