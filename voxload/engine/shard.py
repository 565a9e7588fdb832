"""shard: an ordinary network, made to run on blocks together with the other ranks of its sample group."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from voxload.engine.blocks import Blocks
from voxload.engine.chooser import Chooser, Measured, Told
from voxload.engine.exchange.p2p import exchange_of
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.join import Join
from voxload.engine.network import plan_network
from voxload.engine.sharded import Sharded, Source
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

AUTO = "auto"
"""Name of the choice by measurement."""
MIN_WIDTH = 4
"""Voxels of a block along an axis below which a layer goes to fewer ranks: its messages would take longer than it."""


def shard(
    model: nn.Module,
    grid: ProcessGrid,
    *,
    shape: Sequence[int] | None = None,
    min_width: int = MIN_WIDTH,
    join: str = Join.PAD.value,
    columns: bool = False,
    exchange: Exchange | None = None,
) -> nn.Module:
    """Return `model` made to run split over `grid`: each rank gives its block and gets its part of the result.

    The result has the model's own parameters, under the same names, and the same ``state_dict``; checkpoints of
    either load into the other. A network that ends with a flatten or a global pooling gives the whole result to each
    rank; one that ends with a volume, such as a U-Net, gives each rank its block of it, cut as ``ProcessGrid.block``
    would cut it. Training under stock ``DistributedDataParallel`` or FSDP over the whole world gives the gradients of
    the mean of all ranks' losses, where the loss is that of the whole sample: the result's own, or one of
    `voxload.engine.losses` for a volume.

    Parameters
    ----------
    model
        The network. With a spatial grid of (1, 1, 1), and no `exchange`, it is returned as it is.
    grid
        This rank's view of the grid.
    shape
        Extents (D, H, W) of the whole volume, in voxels; by default the model's ``input_shape``. Without
        either, they follow from the blocks, on every call.
    min_width
        A layer's output goes to fewer ranks along an axis on which blocks would have fewer voxels; 0 for never.
    join
        How convolutions join halos with blocks: ``"pad"`` them, one copy of the block more; or begin with the block
        while messages travel, and then compute outputs at its faces again (``"patch"``) or add to them (``"add"``).
        All are equal to rounding. ``"auto"`` tries all in the first passes, layer by layer, and keeps to the fastest;
        then the last bits of results differ between runs. Compiled networks pad.
    columns
        Whether a dense layer right behind the flatten multiplies each rank's own block with its columns of the weight
        and adds up the products, in place of gathering the volume on every rank.
    exchange
        What carries the messages; by default torch.distributed, which must be initialised. Then all ranks of
        the world must call ``shard`` at the same point, since the first call for a grid makes its process groups.

    Raises
    ------
    UsageError
        When the network does anything that has no split form, by name and before any communication, or when
        the shape does not fit the grid.

    Notes
    -----
    The result takes (B, C, d, h, w) in a floating-point type. Calling it raises the same UsageError or
    InternalError on all ranks of the group when their blocks, types, modes or networks do not fit together,
    and InternalError in bounded time when a rank is lost. One thread at a time may use it.
    """
    if grid.group_size == 1 and exchange is None:
        return model
    if isinstance(model, Sharded):
        raise UsageError("shard", found="a model that is already split", expected="an ordinary module")
    whole = tuple(shape) if shape is not None else getattr(model, "input_shape", None)
    source = Source(model, tuple(count > 1 for count in grid.spatial), columns=columns)
    source.check(whole)
    blocks = None
    if whole is not None:
        blocks = Blocks.of(grid, whole)
        plan_network(source.program().program, blocks, min_width=min_width)
    return Sharded(source, (grid, blocks, min_width), exchange or exchange_of(grid), chooser=_chooser_of(join))


def _chooser_of(name: str) -> Chooser:
    """Return what chooses the way of joining that has this name; raises UsageError."""
    if name == AUTO:
        return Measured()
    known = {join.value: join for join in Join}
    if name not in known:
        raise UsageError("join", found=repr(name), expected=", ".join(map(repr, (*known, AUTO))))
    return Told(known[name])
