"""Stencil: a layer whose outputs read windows of its input, such as a convolution, a pooling or a mere padding.

The split form is always the same: gather the inputs that this rank's outputs read, then call the ordinary
layer without padding along the gathered axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from voxload.engine.arithmetic.axis_plan import FIRST_AXIS, PaddingMode, plan_axis
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.layer_plan import LayerPlan, Tile
from voxload.engine.arithmetic.windows import Reach, Window, collapsed, require_fit
from voxload.engine.layers.form import PassContext, with_forward
from voxload.engine.run.collectives import gather
from voxload.engine.run.tensors import autocast_type
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES

Finish = Callable[[nn.Module, Tensor, Tile], Tensor]
"""Makes this rank's outputs from a layer, the gathered inputs and this rank's part of the plan."""


@dataclass(frozen=True, slots=True)
class Stencil:
    """What one windowed layer reads and writes, along the three spatial axes."""

    kind: str
    """Name of the layer's class, for tables and errors."""
    reaches: tuple[Reach, ...]
    """One per axis (d, h, w)."""
    finish: Finish
    """Makes outputs of gathered inputs."""
    gathered: tuple[bool, ...]
    """Axes along which the engine fetches what outputs read; on the others the layer pads by itself."""
    outside: PaddingMode = PaddingMode.CONSTANT
    """What the layer sees outside the volume."""
    fill: float = 0.0
    """Value outside the volume, where that is constant: 0, or -inf for a maximum."""
    casts: bool = False
    """Whether the layer casts its input under autocast: then this is done before anything is sent."""

    def plan(self, blocks: Blocks, wanted: Blocks | None, *, min_width: int) -> LayerPlan:
        """Return the plan for an input cut into `blocks`; see Form."""
        cuts, gathers = [], []
        for axis, (reach, bounds) in enumerate(zip(self.reaches, blocks.bounds, strict=True)):
            count = require_fit(self.kind, SPATIAL_AXES[axis].lower(), reach, bounds[-1])
            self._require_padding(axis, bounds[-1])
            owners = collapsed(reach.owners(bounds), min_width)
            if wanted is not None and wanted.bounds[axis][-1] == count:
                owners = wanted.bounds[axis]
            cuts.append(owners)
            if self.gathered[axis]:
                gathers.append(plan_axis(axis, bounds, reach.needs(owners, bounds[-1]), self.outside))
        return LayerPlan(blocks, Blocks(tuple(cuts)), tuple(gathers))

    def run(self, layer: nn.Module, x: Tensor, tile: Tile, context: PassContext) -> Tensor:
        """Return this rank's block of the output, (B, C, d, h, w); see Form."""
        if self.casts and (dtype := autocast_type(x.device.type)) is not None:
            x = x.to(dtype)
        for part in tile.parts:
            x = gather(x, part, fill=self.fill, exchange=context.exchange)
        return self.finish(layer, x, tile)

    def _require_padding(self, axis: int, extent: int) -> None:
        """Raise UsageError where torch cannot pad an axis of `extent` voxels so far in this mode."""
        reach, limit = self.reaches[axis], self.outside.reach(extent)
        if limit is not None and isinstance(reach, Window) and max(reach.low, reach.high) > limit:
            raise UsageError(
                f"{self.kind} over {extent} voxels along {SPATIAL_AXES[axis].lower()}",
                found=f"{self.outside.value} padding of {max(reach.low, reach.high)}",
                expected=f"at most {limit}",
            )


@dataclass(frozen=True, slots=True)
class _Handed:
    """Gives the tile to a layer that knows what to do with it."""

    def __call__(self, layer: nn.Module, x: Tensor, tile: Tile) -> Tensor:
        """Return what the layer makes of the gathered inputs."""
        y: Tensor = layer(x, tile)
        return y


HANDED = _Handed()
"""For layers whose `forward` takes the tile too."""


def cropped(y: Tensor, tile: Tile) -> Tensor:
    """Return `y` without what stands for outputs that this rank does not own."""
    for axis, extent in enumerate(tile.extents):
        if extent == 0:
            y = y.narrow(FIRST_AXIS + axis, 0, 0)
    return y


def at_least(x: Tensor, spans: tuple[int, ...], tile: Tile) -> Tensor:
    """Extend `x` with zeros to the given extents along the axes where this rank owns no output.

    The layer then runs as on every other rank, hooks and all, and its parameters and `x` stay part of the
    graph: a rank that left the graph here would miss the backward messages that its peers wait for.
    """
    pads: list[int] = []
    for span, extent in zip(reversed(spans), reversed(tile.extents), strict=True):
        pads += [0, span if extent == 0 else 0]
    return functional.pad(x, pads) if any(pads) else x


PADDINGS: dict[type[nn.Module], PaddingMode] = {
    nn.CircularPad3d: PaddingMode.CIRCULAR,
    nn.ConstantPad3d: PaddingMode.CONSTANT,
    nn.ReflectionPad3d: PaddingMode.REFLECT,
    nn.ReplicationPad3d: PaddingMode.REPLICATE,
    nn.ZeroPad3d: PaddingMode.CONSTANT,
}
"""torch's layers that pad a volume, and what they put there."""


def split_padding(layer: nn.Module, split: tuple[bool, ...]) -> tuple[Stencil, nn.Module]:
    """Return the stencil of a padding layer: each output reads one input, and negative padding leaves some out."""
    # torch lists (low, high) from the last axis to the first.
    pads = tuple(int(number) for number in layer.padding)  # type: ignore[union-attr] # a tuple of six
    windows = tuple(Window(1, low=low, high=high) for low, high in zip(pads[4::-2], pads[5::-2], strict=True))
    fill = float(getattr(layer, "value", 0.0))
    gathered = (True,) * len(split)
    stencil = Stencil(type(layer).__name__, windows, HANDED, gathered, PADDINGS[type(layer)], fill)
    return stencil, with_forward(layer, _untouched)


def _untouched(_layer: nn.Module, x: Tensor, tile: Tile) -> Tensor:
    """Return what was gathered."""
    return cropped(x, tile)
