"""shard: an ordinary network, made to run on blocks together with the other ranks of its sample group."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.split_plan import SplitPlan
from voxload.engine.checked import checked
from voxload.engine.exchange.distributed import exchange_of
from voxload.engine.exchange.in_process import NoExchange
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.onblocks import OnBlocks, on_blocks
from voxload.engine.forward.plan_cache import PlanCache, PlannedPass, SplitOptions
from voxload.engine.forward.planning import GATHER_LIMIT
from voxload.engine.graph.network_plan import plan_network
from voxload.engine.graph.sharded import Sharded, TracedModel, modes_set
from voxload.engine.model.meta_runs import require_module, small_sizes, takes_more, why_none
from voxload.engine.run.join import AutotunedJoin, Chooser, FixedJoin, Join
from voxload.engine.sharded_weights import keep_parts
from voxload.errors import InternalError, UsageError
from voxload.grid import ProcessGrid

__all__ = ["MIN_WIDTH", "Sharded", "shard", "shard_on_shapes"]

AUTO = "auto"
"""Name of the choice by measurement."""
MIN_WIDTH = 4
"""Voxels of a block along an axis below which a layer goes to fewer ranks: its messages would take longer than it."""


def shard(  # noqa: PLR0913 - each is a choice of the caller's
    model: nn.Module,
    grid: ProcessGrid,
    *,
    shape: Sequence[int] | None = None,
    min_width: int = MIN_WIDTH,
    join: str = Join.PAD.value,
    columns: bool = False,
    plan: SplitPlan | None = None,
    shard_weights: bool = False,
    gather_limit: int = GATHER_LIMIT,
    verify: bool = False,
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
    plan
        What layers use the grid's axes for, where not all cut volumes in space: filters or channels of convolutions
        and dense layers. Results leave the network as they do without a plan.
    shard_weights
        Whether each rank keeps its part alone of weights that the plan cuts: a DTensor, in the model's own layers too,
        as its optimiser's state will be. DDP leaves such weights alone, and FSDP2 is to be told to, by
        ``ignored_params=voxload.engine.sharded_parameters(network)``; their gradients come as means over the world.
    gather_limit
        Bytes up to which a tensor is made whole, on every rank, for an operation that has no split form; a warning
        names it once. 0 for never.
    verify
        Whether to run the split network on virtual ranks of this process, over the smallest volume that it takes and
        the grid can cut, with every layer on all ranks, and to compare it with the model's own ``forward``, as
        `voxload.engine.check` does. Every rank does that by itself.
    exchange
        What carries the messages; by default torch.distributed, which must be initialised. Then all ranks of
        the world must call ``shard`` at the same point, since the first call for a grid makes its process groups.

    Raises
    ------
    UsageError
        When the network does anything that has no split form, by name and before any communication, when the shape
        does not fit the grid, or when `verify` is asked for and no volume is small enough.
    InternalError
        When `verify` found a difference: the split network must not be used.

    Notes
    -----
    The result takes (B, C, d, h, w) in a floating-point type. Calling it raises the same UsageError or
    InternalError on all ranks of the group when their blocks, types, modes or networks do not fit together,
    and InternalError in bounded time when a rank is lost. One thread at a time may use it.
    """
    require_module(model)
    if grid.group_size == 1 and exchange is None:
        return model
    if isinstance(model, Sharded | OnBlocks):
        raise UsageError("shard", found="a model that is already split", expected="an ordinary module")
    whole = tuple(shape) if shape is not None else getattr(model, "input_shape", None)
    blocks = None if whole is None else Blocks.of(grid, whole)
    chooser = _chooser_of(join)
    source, refusal = None, None
    uses = None if plan is None or plan.is_in_space else plan
    if uses is None:  # programs of traced layers know of volumes alone
        source, refusal = _traced(model, grid, whole, min_width=min_width, columns=columns)
    if source is not None:
        split: nn.Module = Sharded(source, (grid, blocks, min_width), exchange or exchange_of(grid), chooser=chooser)
    else:
        plans = PlanCache(model, SplitOptions(grid, blocks, min_width, gather_limit, columns=columns, plan=uses))
        if whole is not None and not _is_planned(model, whole, plans):
            raise UsageError(
                f"shard of {type(model).__name__}",
                found=f"no volume of shape {tuple(whole)}, with as many channels as its layers tell, that it takes on "
                f"shapes alone ({why_none(model, whole)})",
                expected="a forward that runs on (B, C, D, H, W)",
                remedy="try the model itself on such a volume, or leave shape= away where it takes other channels"
                + (f"; no trace keeps it either: {refusal}" if refusal is not None else ""),
            )
        split = on_blocks(model, plans, exchange or exchange_of(grid), chooser=chooser)
    if verify:
        _verify(model, grid, whole, {"join": join, "columns": columns, "plan": plan, "gather_limit": gather_limit})
    if shard_weights:  # last: the model's own layers have parts from here on
        _shard_weights(split, None if uses is None or whole is None else plans.ahead(split, whole), grid)
    return split


def shard_on_shapes(
    model: nn.Module, grid: ProcessGrid, shape: Sequence[int], *, min_width: int = MIN_WIDTH
) -> nn.Module:
    """Return `model` split as `shard` would split it, to be run on tensors without data; nothing is sent.

    Whether a trace does what the network's ``forward`` does is not looked at: that takes longer than all the rest, and
    changes what comes out, hardly what runs.

    Raises
    ------
    UsageError
        As `shard` does.
    """
    source = TracedModel(model, tuple(count > 1 for count in grid.spatial))
    carrier = NoExchange(grid)
    try:
        source.trust()
        plan_network(source.program().program, Blocks.of(grid, shape), min_width=min_width)
    except UsageError:
        return shard(model, grid, shape=shape, min_width=min_width, exchange=carrier)
    return Sharded(source, (grid, Blocks.of(grid, shape), min_width), carrier, chooser=FixedJoin(Join.PAD))


def _shard_weights(network: nn.Module, planned: PlannedPass | None, grid: ProcessGrid) -> None:
    if planned is None:
        raise UsageError(
            "shard_weights",
            found="no plan that cuts weights, or no shape of a single volume that the network takes",
            remedy="give plan= and shape= to voxload.engine.shard",
        )
    keep_parts(network, planned.plan, grid)


def _traced(
    model: nn.Module, grid: ProcessGrid, shape: Sequence[int] | None, *, min_width: int, columns: bool
) -> tuple[TracedModel | None, UsageError | None]:
    """Return the trace of a model of which a split program can be made; else None and why not."""
    try:
        source = TracedModel(model, tuple(count > 1 for count in grid.spatial), columns=columns)
        source.check(shape)
        if shape is not None:
            plan_network(source.program().program, Blocks.of(grid, shape), min_width=min_width)
    except UsageError as refusal:
        return None, refusal
    return source, None


def _is_planned(model: nn.Module, shape: Sequence[int], plans: PlanCache) -> bool:
    """Plan a pass in training and one in evaluation, so that what is refused is refused now.

    Returns False for a network of one input that takes no volume of this shape. One of several inputs is planned when
    they come.
    """
    modules = list(model.modules())
    found = []
    for mode in (True, False):
        with modes_set(modules, (mode,) * len(modules)):
            found.append(plans.ahead(model, shape))
    return None not in found or takes_more(model)


def _chooser_of(name: str) -> Chooser:
    """Return what chooses the way of joining that has this name; raises UsageError."""
    if name == AUTO:
        return AutotunedJoin()
    known = {join.value: join for join in Join}
    if name not in known:
        raise UsageError("join", found=repr(name), expected=", ".join(map(repr, (*known, AUTO))))
    return FixedJoin(known[name])


def _verify(model: nn.Module, grid: ProcessGrid, shape: Sequence[int] | None, options: dict[str, Any]) -> None:
    """Raise unless a small volume gives split what it gives whole."""
    refused = UsageError(
        f"shard(verify=True) of {type(model).__name__}",
        found="no small volume that it takes",
        expected="one of at most 128^3 voxels",
        remedy="verify a smaller network of the same class, or call voxload.engine.check with a shape",
    )
    for size in small_sizes(model, shape, grid.spatial):

        def split(twin: nn.Module, own: ProcessGrid, carrier: Exchange, extents: Sequence[int] = size[2:]) -> nn.Module:
            return shard(twin, own, shape=extents, min_width=0, exchange=carrier, **options)

        try:
            found = checked(model, size, grid.spatial, split)
        except UsageError as error:  # too small for a window, or for that many blocks
            refused = error
            continue
        if found.not_compared:
            told = " and ".join(found.not_compared)
            warnings.warn(
                f"{type(model).__name__} is not verified in {told}: forward draws random numbers", stacklevel=3
            )
        if found.difference:
            raise InternalError(
                f"split form of {type(model).__name__}",
                found=found.difference,
                expected=f"what the network itself gives for a volume of shape {size}, to rounding",
                remedy="do not use it, and report the network: voxload.engine.check shows the figures",
            )
        return
    raise refused
