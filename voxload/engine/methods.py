"""Methods: those of a loaded model that take volumes, such as the encoder and decoder of a video autoencoder.

They are split in place, so that a program that knows nothing of blocks calls them as before, and put back by `unshard`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.exchange.distributed import exchange_of
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.forward.block import Block
from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.onblocks import on_blocks
from voxload.engine.forward.plan_cache import PlanCache, SplitOptions
from voxload.engine.forward.planning import GATHER_LIMIT
from voxload.engine.model.meta_runs import require_module
from voxload.engine.model.pytrees import leaves, mapped
from voxload.errors import UsageError
from voxload.grid import ProcessGrid


def shard_methods(
    model: nn.Module,
    grid: ProcessGrid,
    names: Sequence[str],
    *,
    whole: bool = True,
    min_width: int = 0,
    gather_limit: int = GATHER_LIMIT,
    exchange: Exchange | None = None,
) -> None:
    """Let methods of `model` run split over `grid`, in place: every rank computes the block that it would have.

    The model stays the object that it is, of its class, with its parameters. All ranks of a sample group must call the
    methods together, with the same arguments. Results are those of one process, to rounding, also where a library's
    own parallel decoding approximates them.

    Parameters
    ----------
    model
        A module, such as ``AutoencoderKLWan`` of diffusers.
    grid
        This rank's view of the grid. With a spatial grid of (1, 1, 1), and no `exchange`, methods stay as they are.
    names
        Methods whose first tensor is a volume (B, C, d, h, w), or images (B, C, h, w): ``["encode", "decode"]``, say.
    whole
        Whether methods take and give whole volumes, on every rank, as before; then a rank cuts its block by itself,
        and what results is gathered. Else they take and give blocks, as the result of `shard` does.
    min_width, gather_limit, exchange
        As `shard` has them.

    Raises
    ------
    UsageError
        When the model has no such method, or is split already; and, when a method is called, for whatever `shard`
        refuses.

    Notes
    -----
    The gradients of parameters are those of the mean of all ranks' losses, as those of `shard`. Of a whole volume that
    was given, a rank gets the gradient of its own block. Random numbers that a method draws are the same on all ranks.
    One thread at a time may call it.
    """
    require_module(model)
    if _METHODS in vars(model):
        raise UsageError("shard_methods", found="a model whose methods are split", expected="unshard(model) before")
    given: Any = names  # what a caller hands over may be anything
    if isinstance(given, str):
        raise UsageError("shard_methods", found=f"names={given!r}", expected=f"a list of names, such as [{given!r}]")
    for name in names:
        if not callable(getattr(type(model), name, None)):
            raise UsageError(
                f"shard_methods of {type(model).__name__}", found=repr(name), expected="its methods' names"
            )
    if grid.group_size == 1 and exchange is None:
        vars(model)[_METHODS] = ()
        return
    carrier = exchange or exchange_of(grid)
    split = {
        name: _Split(model, name, SplitOptions(grid, None, min_width, gather_limit, whole), carrier) for name in names
    }
    # The model's own dictionary hides the class's methods, and no module is made a part of it.
    vars(model).update(split)
    vars(model)[_METHODS] = tuple(split)


def unshard(model: nn.Module) -> None:
    """Put the methods back that `shard_methods` has split; raises UsageError where none are."""
    require_module(model)
    names = vars(model).pop(_METHODS, None)
    if names is None:
        raise UsageError("unshard", found=type(model).__name__, expected="a model that shard_methods has split")
    for name in names:
        del vars(model)[name]


_METHODS = "_voxload_methods"
"""Attribute of a model with the names of its split methods."""


class _Method(nn.Module):
    """A module whose forward is a method of a model, and that returns what objects among its results hold beside."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def called(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the method of the model's class gives."""
        return getattr(type(self.model), self.name)(self.model, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        """Return the same, and the tensors that objects hold, in the order of their leaves."""
        result = self.called(*args, **kwargs)
        return result, [vars(each)[name] for each in leaves(result) for name in _held(each)]


class _Split:
    """A method that runs on blocks of what it is given."""

    def __init__(self, model: nn.Module, name: str, cut: SplitOptions, exchange: Exchange) -> None:
        method = _Method(model, name)
        self._network: Any = on_blocks(method, PlanCache(method, cut), exchange)
        self._cut = cut

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the method gives."""
        if any(isinstance(leaf, Block) for leaf in leaves((args, kwargs))):  # called from within another one
            return self._network.called(*args, **kwargs)
        given = self._blocks((args, kwargs)) if self._cut.returns_whole else (args, kwargs)
        result, parts = self._network(*given[0], **given[1])
        return mapped(result, _filler(iter(parts)))

    def _blocks(self, given: Any) -> Any:
        """Return arguments with this rank's blocks in the place of volumes."""
        inputs, grid = Inputs.of(*given), self._cut.grid
        cuts = iter(inputs.cuts(Blocks.of(grid, inputs.extents)))
        return mapped(given, lambda leaf: next(cuts).block(leaf, grid.coords) if isinstance(leaf, Tensor) else leaf)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise self._uncopied()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._uncopied()

    def _uncopied(self) -> UsageError:
        return UsageError(
            f"copy of a model whose method {self._network.name!r} is split",
            found="a method that runs the layers of this very model",
            expected="a model as it was",
            remedy="call voxload.engine.unshard first, and split the copy",
        )


def _held(leaf: Any) -> Iterator[str]:
    """Yield the names of attributes that are tensors, of an object that is no tensor or module itself."""
    if isinstance(leaf, torch.Tensor | nn.Module | type) or not hasattr(leaf, "__dict__"):
        return
    yield from (name for name, value in vars(leaf).items() if isinstance(value, Tensor))


def _filler(parts: Iterator[Any]) -> Callable[[Any], Any]:
    """Return what puts tensors into copies of the objects that held blocks, in their order."""

    def filled(leaf: Any) -> Any:
        names = list(_held(leaf))
        if not names:
            return leaf
        twin = copy.copy(leaf)
        vars(twin).update({name: next(parts) for name in names})
        return twin

    return filled
