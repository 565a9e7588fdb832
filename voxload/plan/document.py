"""Plan: a setup that was chosen, as a file that commands and programs load.

``voxload plan --output`` writes it; ``voxload train --plan`` and ``voxload convert --plan`` take it, and so does
whoever calls `load`: ``shard(model, plan.grid(rank), plan=plan.split)``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from voxload.display.description import Described, Description
from voxload.display.grid_picture import Cuts, counted, grid_picture
from voxload.display.table import extents, joined, several
from voxload.engine import SplitPlan
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.files.atomic import replacing
from voxload.files.regular import check_regular, read_text
from voxload.grid import ProcessGrid
from voxload.launch.wire import decode
from voxload.units import format_bytes

FORMAT = "voxload plan 1"
"""What a file of this kind begins with."""


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Described):
    """How one network is trained on a number of ranks, and what that was said to take."""

    model: str
    """Name of the network, as ``voxload plan`` takes it."""
    sample: tuple[int, int, int, int]
    """Channels and extents (C, D, H, W)."""
    machine: str
    """Name of the machine."""
    spatial: tuple[int, int, int]
    """Blocks along (D, H, W)."""
    groups: int
    """Sample groups."""
    samples: int
    """Of one group's batch."""
    optimizer: str = "adam"
    dtype: str = "float32"
    layers: dict[str, str] = field(default_factory=dict)
    """What layers use the axes of the grid for, as `voxload.engine.SplitPlan.of` takes it; those left out, space."""
    wrapper: str = "ddp"
    """What averages gradients: ``ddp``; ``fsdp`` for ``fully_shard`` around the whole network, ``fsdp-modules`` for
    that around each module with weights as well."""
    stages: int = 1
    """Groups of ranks, one behind the other, that have parts of the network."""
    microbatches: int = 1
    """That a group's batch goes through stages in."""
    cuts: tuple[str, ...] = ()
    """Where the network is cut into stages, as `voxload.engine.pipeline_parts` takes it."""
    recompute: tuple[str, ...] = ()
    """Paths of modules that run again in the backward pass, as `voxload.plan.checkpoint_modules` takes them."""
    staging: int = 0
    """Bytes of the buffers that a loader reads ahead into, as `voxload.DataLoader` takes them; 0 for its own choice."""
    cache: int = 0
    """Bytes of each node's memory that blocks are kept in, as `voxload.Cache` takes them; 0 for none."""
    predicted: dict[str, float] = field(default_factory=dict)
    """Seconds of a step and its parts, and bytes of memory."""

    def __post_init__(self) -> None:
        counts = (*self.spatial, self.groups, self.samples, *self.sample, self.stages, self.microbatches)
        if min(counts) < 1:
            raise UsageError("plan", found=f"{self.spatial}, {self.groups} groups", expected="counts of 1 or more")
        if len(self.cuts) != self.stages - 1 or self.samples % self.microbatches:
            raise UsageError(
                "plan",
                found=f"{self.stages} stages with {len(self.cuts)} cuts, {self.samples} samples in {self.microbatches}",
                expected="a cut between stages, and microbatches of as many samples each",
            )

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.groups * self.stages * prod(self.spatial)

    @property
    def split(self) -> SplitPlan | None:
        """What layers use the grid for; None where all cut volumes in space."""
        return SplitPlan.of(self.layers) if self.layers else None

    def grid(self, rank: int = 0) -> ProcessGrid:
        """Return the grid of a rank; with stages, each sample group of it is one stage of a pipeline."""
        return ProcessGrid(self.spatial, self.ranks, rank)

    def data_grid(self, rank: int = 0) -> ProcessGrid:
        """Return the grid that a rank's loader deals samples out by: all stages of a pipeline have the same."""
        blocks = prod(self.spatial)
        pipeline, place = rank // (blocks * self.stages), rank % blocks
        return ProcessGrid(self.spatial, self.groups * blocks, pipeline * blocks + place)

    def _described(self) -> Description:
        groups = several(self.groups, "group")
        blocks = f"{extents(self.spatial)} {'block' if prod(self.spatial) == 1 else 'blocks'}"
        staged = f"{self.stages} stages, {self.microbatches} microbatches" if self.stages > 1 else ""
        step = self.predicted.get("step")
        said = "" if step is None else f"{step:.3g} s a step"
        facts = {
            "network": self.model,
            "sample (C, D, H, W)": extents(self.sample),
            "machine": self.machine,
            "ranks": f"{self.ranks:,}: {groups} of {blocks}, {several(self.samples, 'sample')} in a group's batch",
            "pipeline": f"{staged}, cut at {joined(self.cuts)}" if staged else "",
            "gradients": f"{self.wrapper}, {self.optimizer}, {self.dtype}",
            "layers that use the grid otherwise": joined(f"{name}: {use}" for name, use in self.layers.items()),
            "modules that run again": joined(self.recompute),
            "staging": format_bytes(self.staging) if self.staging else "",
            "cache of a node": format_bytes(self.cache) if self.cache else "",
            "predicted": joined((f"{name} {value:.4g}" for name, value in self.predicted.items()), 12),
        }
        ranks = f"{several(self.ranks, 'rank')}: {groups} of {blocks}"
        parts = (self.model, f"sample {extents(self.sample)}", ranks, staged, said)
        name = type(self).__name__
        return Description(name, tuple(filter(None, parts)), facts, picture=self._picture())

    def _picture(self) -> str:
        """Return how a sample is cut; its block is that of the first rank."""
        if any(count > extent for count, extent in zip(self.spatial, self.sample[1:], strict=True)):
            return grid_picture(counted(self.spatial))
        grid = ProcessGrid(self.spatial, prod(self.spatial))
        return grid_picture(Cuts(grid.bounds(self.sample[1:]), grid.block(self.sample[1:])))

    def write(self, path: str | Path) -> None:
        """Write the plan; the file appears whole or not at all."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1)
        with replacing(Path(path)) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


def load(path: str | Path) -> Plan:
    """Return the plan of a file.

    Raises
    ------
    NotFoundError
        When there is no such file.
    DataError
        When it is no plan, or one of another version.
    """
    check_regular(path)
    if not Path(path).is_file():
        raise NotFoundError(f"plan {path}", found="no such file", remedy="write one with voxload plan --output")
    text = read_text(Path(path))
    wanted = "a file that voxload plan --output wrote"
    try:
        values: dict[str, Any] = json.loads(text)
        form = values.pop("format")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"plan {path}", found=str(error) or "no format", expected=wanted) from error
    if form != FORMAT:
        raise DataError(f"plan {path}", found=f"format {form!r}", expected=FORMAT, remedy="plan again")
    try:
        return decode(json.dumps(values).encode(), Plan)
    except (DataError, UsageError) as error:
        raise DataError(f"plan {path}", found=str(error), expected=wanted, remedy="plan again") from error
