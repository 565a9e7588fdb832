"""Running: one forward pass on this rank's blocks, as its plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from voxload.engine.forward.block import Block
from voxload.engine.forward.moving import moved
from voxload.engine.forward.planning import ForwardPlan, key_of
from voxload.engine.forward.recording import OF_AUTOGRAD, Given
from voxload.engine.forward.ruling import Here
from voxload.engine.forward.sharding import Sharding
from voxload.engine.forward.trees import leaves, mapped
from voxload.errors import InternalError


def run(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cuts: Sequence[Sharding],
    *,
    plan: ForwardPlan,
    here: Here,
) -> Any:
    """Return what ``model.forward`` gives of this rank's blocks; all ranks of a sample group must call it together.

    Results that leave the network cut are this rank's blocks of them, all others are whole on every rank.
    """
    runner = _Runner(plan, here)
    left = iter(cuts)
    given = mapped(
        (tuple(args), dict(kwargs)), lambda each: runner.wrapped(each, next(left)) if isinstance(each, Tensor) else each
    )
    result = model(*given[0], **given[1])
    return mapped(result, lambda each: runner.returned(each) if isinstance(each, Block) else each)


class _Runner:
    """Carries out calls that take blocks."""

    def __init__(self, plan: ForwardPlan, here: Here) -> None:
        self._plan, self._here = plan, here

    def wrapped(self, local: Tensor, cut: Sharding) -> Tensor:
        """Return a tensor as the user's forward sees it: a block of the whole, or the whole."""
        return local if cut.is_whole else Block.of(local, cut.shape, about=cut, runner=self)

    def returned(self, block: Block) -> Tensor:
        """Return a result in the cut in which it leaves the network."""
        move = self._plan.results.get(block.about)
        if move is None:
            raise _unplanned("the network's result")
        return moved(block.local, move, self._here.coords, self._here.exchange)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call of torch as planned."""
        if function in OF_AUTOGRAD:
            bare = mapped((args, kwargs), lambda each: each.local if isinstance(each, Block) else each)
            return function(*bare[0], **bare[1])
        step = self._plan.steps.get(key_of(function, *mapped((args, kwargs), _described)))
        if step is None:
            raise _unplanned(f"call of {getattr(function, '__name__', function)}")
        blocks = {id(each.local): each for each in leaves((args, kwargs)) if isinstance(each, Block)}
        moves, cuts = iter(step.moves), iter(step.results)
        given = mapped((args, kwargs), lambda each: self._taken(each, next(moves)) if isinstance(each, Block) else each)
        result = step.action.run(function, given[0], given[1], self._here)

        def wrap(each: Any) -> Any:
            if not isinstance(each, Tensor):
                return each
            cut = next(cuts)
            return blocks[id(each)] if id(each) in blocks else self.wrapped(each, cut)

        return mapped(result, wrap)

    def _taken(self, block: Block, move: Any) -> Tensor:
        return block.local if move is None else moved(block.local, move, self._here.coords, self._here.exchange)


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Block):
        return leaf.about
    return Given(tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _unplanned(subject: str) -> InternalError:
    return InternalError(
        subject,
        found="no plan for it",
        expected="the calls that forward made when it was recorded",
        remedy="let nothing but shapes, types and training modes decide which way forward goes, on every rank",
    )
