"""Pipeline: parts of a network on sample groups of their own, one behind the other, each split over its group.

Sample groups that follow each other are the stages of one pipeline; what one gives, its ranks send to those of the next
that have the same place. Microbatches and their order are those of torch.distributed.pipelining (Huang et al., GPipe,
2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from voxload.engine.exchange.distributed import exchange_of
from voxload.engine.exchange.in_process import NoExchange
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.passes import pass_seed, seeded
from voxload.engine.model.meta_runs import on_meta
from voxload.engine.shard import shard
from voxload.errors import UsageError
from voxload.grid import ProcessGrid

if TYPE_CHECKING:  # importing it takes longer than all of this package
    from torch.distributed.pipelining import PipelineStage

Wrap = Callable[[nn.Module, dist.ProcessGroup | None], nn.Module]
"""Makes what averages gradients over a process group, such as DistributedDataParallel, of a stage's network."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A tensor that goes from one part of a network to the next."""

    shape: tuple[int, ...]
    """Of the whole."""
    own: tuple[int, ...]
    """Of what this rank has of it."""
    dtype: torch.dtype

    @property
    def is_cut(self) -> bool:
        """Whether ranks have blocks of it."""
        return self.shape != self.own

    def empty(self, *, is_whole: bool = False, has_gradient: bool = False) -> Tensor:
        """Return a tensor like this rank's, or like the whole, without data."""
        shape = self.shape if is_whole else self.own
        return torch.empty(shape, dtype=self.dtype, device="meta", requires_grad=has_gradient)


Boundary = tuple[Carried, ...]
"""All that goes from one part to the next."""


def pipeline_stage(
    parts: Sequence[nn.Module],
    grid: ProcessGrid,
    shape: Sequence[int],
    *,
    channels: int,
    samples: int,
    device: torch.device,
    wrap: Wrap | None = None,
    **options: Any,
) -> PipelineStage:
    """Return this rank's stage, for a schedule of torch.distributed.pipelining; all ranks must call it together.

    Sample group g of the grid has part ``g % len(parts)``. So a pipeline takes as many groups as there are parts, and a
    grid of more has several pipelines, with samples of their own. The losses that the last part's ranks give to the
    schedule have to be those of whole samples, as without a pipeline; gradients are those of the mean of these losses,
    once `wrap` has averaged them over all ranks that have the same part.

    Parameters
    ----------
    parts
        Networks, in order, such as `pipeline_parts` makes of one: each takes what the one before it gives, one tensor
        or, where groups are of one rank, several.
    grid
        This rank's view of the grid.
    shape
        Extents (D, H, W) of the whole volume that the first part takes, in voxels.
    channels, samples
        Of that volume, and in a microbatch.
    device
        That the stage runs on.
    wrap
        What averages gradients; None for nothing.
    options
        What else `voxload.engine.shard` takes, for every part.

    Raises
    ------
    UsageError
        Where parts and groups do not fit together, a part cannot be split, or has statistics over the world.
    """
    _require(parts, grid)
    found = list(boundaries(parts, grid, (samples, channels, *shape), options))
    number = grid.group % len(parts)
    before, behind = found[number], found[number + 1]
    network = parts[number]
    if _is_cut(before):
        network = shard(network, grid, shape=before[0].shape[-3:], **options)
    elif grid.group_size > 1:
        network = _Alike(network, exchange_of(grid))
    line, same = _groups(grid, len(parts))
    if wrap is not None:
        network = wrap(network, same)

    from torch.distributed.pipelining import PipelineStage  # noqa: PLC0415 - see above

    return PipelineStage(
        network,
        number,
        len(parts),
        device,
        input_args=tuple(each.empty(has_gradient=number > 0 and each.dtype.is_floating_point) for each in before),
        output_args=tuple(each.empty(has_gradient=each.dtype.is_floating_point) for each in behind),
        group=line,
    )


def _require(parts: Sequence[nn.Module], grid: ProcessGrid) -> None:
    if len(parts) < 2 or grid.groups % len(parts):
        raise UsageError(
            f"a pipeline of {len(parts)} parts",
            found=f"{grid.groups} sample groups of {grid.group_size} ranks",
            expected="two parts or more, and a multiple of that many groups",
            remedy="start more ranks, or cut the network into other parts",
        )
    if any(isinstance(module, nn.SyncBatchNorm) for part in parts for module in part.modules()):
        raise UsageError(
            "a pipeline",
            found="SyncBatchNorm, whose sums all ranks of the world take part in, of which some have other parts",
            expected="statistics of a sample group, such as BatchNorm3d has",
        )


def boundaries(
    parts: Sequence[nn.Module], grid: ProcessGrid, size: tuple[int, ...], options: Mapping[str, Any]
) -> Iterator[Boundary]:
    """Yield what each part takes, and what the last one gives, by runs on shapes alone.

    Parameters
    ----------
    parts
        Networks, in order.
    grid
        The grid, seen from the rank of interest.
    size
        Samples, channels and extents (B, C, D, H, W) of what the first part takes.
    options
        Of `voxload.engine.shard`.

    Raises
    ------
    UsageError
        Where a part cannot be split, or what it gives cannot be sent to the ranks of the next.
    """
    dtype = next((each.dtype for each in parts[0].parameters()), torch.get_default_dtype())
    before: Boundary = (Carried(size, (*size[:2], *grid.block(size[2:]).shape), dtype),)
    yield before
    for number, part in enumerate(parts):
        twin = on_meta(part).to(before[0].dtype)
        whole = _ran(twin, [each.empty(is_whole=True) for each in before], number)
        own = whole
        if _is_cut(before):
            if len(before) > 1:
                raise UsageError(
                    f"part {number} of a pipeline",
                    found=f"{len(before)} tensors that it takes, cut over {grid.group_size} ranks of a group",
                    expected="one, or groups of one rank",
                    remedy="cut the network where one tensor goes on: voxload.engine.pipeline_cuts tells where",
                )
            shape = before[0].shape[-3:]
            split = shard(twin, grid, shape=shape, exchange=NoExchange(grid), **options)
            own = _ran(split, [before[0].empty()], number)
        before = tuple(
            Carried(tuple(one.shape), tuple(mine.shape), one.dtype) for one, mine in zip(whole, own, strict=True)
        )
        for each in before:
            if each.is_cut and each.own[-3:] != grid.block(each.shape[-3:]).shape:
                raise UsageError(
                    f"part {number} of a pipeline",
                    found=f"a result of which this rank has {each.own} of {each.shape}",
                    expected="a block as the grid cuts it, or the whole",
                    remedy="end the part with a layer that is cut in space",
                )
        yield before


def _is_cut(boundary: Boundary) -> bool:
    return any(each.is_cut for each in boundary)


def _ran(part: nn.Module, given: Sequence[Tensor], number: int) -> tuple[Tensor, ...]:
    with torch.no_grad():
        found = part(*given)
    tensors = found if isinstance(found, tuple | list) else (found,)
    if not tensors or not all(isinstance(each, Tensor) for each in tensors):
        raise UsageError(
            f"part {number} of a pipeline", found=type(found).__name__, expected="a tensor or several as its result"
        )
    return tuple(tensors)


def _groups(grid: ProcessGrid, stages: int) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]:
    """Return the process groups of this rank's pipeline, at its place, and of all ranks that have its part."""
    line = same = None
    for pipeline in range(grid.groups // stages):
        for place in range(grid.group_size):
            groups = range(pipeline * stages, (pipeline + 1) * stages)
            ranks = [group * grid.group_size + place for group in groups]
            made = dist.new_group(ranks)
            line = made if grid.rank in ranks else line
    for stage in range(stages):
        ranks = [rank for rank in range(grid.world_size) if rank // grid.group_size % stages == stage]
        made = dist.new_group(ranks)
        same = made if grid.rank in ranks else same
    return line, same


class _Alike(nn.Module):
    """A part that takes what every rank of a group has whole: all draw the same random numbers."""

    def __init__(self, part: nn.Module, exchange: Exchange) -> None:
        super().__init__()
        self.part, self._exchange = part, exchange

    def forward(self, *given: Tensor) -> Any:
        """Return what the part gives."""
        ((seed,), *_) = self._exchange.share([pass_seed()])
        with seeded(seed, given[0].device):
            return self.part(*given)
