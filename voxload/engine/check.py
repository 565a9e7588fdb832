"""check: whether a network gives split what it gives whole, by running both on virtual ranks of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from voxload.engine.checked import Checked, checked
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.model.meta_runs import require_module, whole_size
from voxload.engine.shard import shard
from voxload.errors import UsageError
from voxload.grid import ProcessGrid


def check(
    model: nn.Module,
    shape: Sequence[int],
    grid: ProcessGrid,
    *,
    channels: int | None = None,
    args: Sequence[Any] = (),
    **options: Any,
) -> Checked:
    """Run `model` whole and split over the blocks of `grid`, and return how far they are apart; print it for a table.

    Both run here, in float64 on the host, forward and backward, in training and in evaluation mode, on two samples of
    random numbers: ranks are threads of this process, which take turns. Compared are the result, the gradients of the
    input and of every parameter, and the buffers afterwards. It takes the memory of a network in one process in float64
    twice, and the time of as many passes. Dropout layers drop nothing in this.

    Parameters
    ----------
    model
        The ordinary network, anywhere; it is left as it is.
    shape
        Extents (D, H, W) of the whole volume, in voxels; a small one tells as much as a large one.
    grid
        The grid; only its spatial blocks count.
    channels
        Channels of the volume; by default what the network's first layer takes.
    args
        What forward takes beside the volume, for a batch of two: tensors of its extents are cut like it, all others,
        such as time steps, are whole. Floating-point tensors are taken in float64.
    options
        What else `voxload.engine.shard` takes, such as ``min_width=0``, with which every layer runs on all ranks
        however small the volume is.

    Raises
    ------
    UsageError
        When `voxload.engine.shard` refuses the network, or the network does not take such a volume.

    Notes
    -----
    Thread-safe as far as the network's own ``forward`` is: torch.fx replaces methods of ``nn.Module`` while it traces.

    Examples
    --------
    >>> layers = nn.Sequential(nn.Conv3d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv3d(2, 1, 3, padding=1))
    >>> check(layers, (8, 8, 8), ProcessGrid((2, 1, 2), 4)).is_equal
    True
    """
    require_module(model)
    if not isinstance(args, list | tuple):
        raise UsageError("args", found=type(args).__name__, expected="a tuple of what forward takes beside the volume")
    size = whole_size(model, shape, channels, args=args)
    if size is None:
        raise UsageError(
            f"check of {type(model).__name__}",
            found=f"no volume of shape {tuple(shape)} that it takes",
            expected="a forward that runs on (B, C, D, H, W)",
            remedy="try the model itself on such a volume; give channels= where its first layer does not tell them, "
            "and args= where forward takes more than a volume",
        )

    def split(twin: nn.Module, own: ProcessGrid, exchange: Exchange) -> nn.Module:
        return shard(twin, own, shape=shape, exchange=exchange, **options)

    return checked(model, size, grid.spatial, split, args=args)
