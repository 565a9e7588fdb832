"""Running: one forward pass on this rank's blocks, as its plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from voxload.engine.forward.block import Block, runner_of
from voxload.engine.forward.in_place import apart
from voxload.engine.forward.planning import ForwardPlan, PlannedCall, key_of
from voxload.engine.forward.recording import OF_AUTOGRAD, name_of
from voxload.engine.forward.redistribution import Move, moved
from voxload.engine.forward.rule import Context
from voxload.engine.forward.sharding import Sharding
from voxload.engine.model.pytrees import TENSOR, leaves, mapped
from voxload.engine.run.autograd_functions import Applied, Watch
from voxload.errors import UsageError

_CASTS: frozenset[Any] = frozenset(
    getattr(Tensor, name)
    for name in ("to", "type", "float", "half", "bfloat16", "double", "detach", "clone", "contiguous", "requires_grad_")
)
"""Methods that leave values where they are: what wraps layers, such as FSDP, may call them at any time."""


def run(
    forward: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cuts: Sequence[Sharding],
    *,
    plan: ForwardPlan,
    here: Context,
) -> Any:
    """Return what `forward` gives of this rank's blocks; all ranks of a sample group must call it together.

    Results that leave the network cut are this rank's blocks of them, all others are whole on every rank.

    Raises
    ------
    UsageError
        Where forward makes other calls than when it was recorded; other ranks may then wait for this one in vain.
    """
    runner = _Runner(plan, here)
    left = iter(cuts)
    given = mapped(
        (tuple(args), dict(kwargs)), lambda each: runner.wrapped(each, next(left)) if isinstance(each, Tensor) else each
    )
    result = forward(*given[0], **given[1])
    runner.end()
    return mapped(result, lambda each: runner.returned(each) if isinstance(each, Block) else each)


class _Runner:
    """Carries out calls that take blocks."""

    def __init__(self, plan: ForwardPlan, here: Context) -> None:
        self._plan, self._here = plan, here
        self._done = 0
        self._has_ended = False
        self._by_weight: dict[int, PlannedCall] = {}

    def wrapped(self, local: Tensor, cut: Sharding) -> Tensor:
        """Return a tensor as the user's forward sees it: a block of the whole, or the whole."""
        if cut.is_whole and not self._plan.follows_whole:
            return local
        return Block.of(local, cut.shape, about=cut, runner=self)

    def end(self) -> None:
        """Raise unless all calls were made. From here on parts are called again only, by checkpointing."""
        if self._done != len(self._plan.sequence):
            call, _ = self._plan.sequence[self._done]
            raise _unplanned("the end of forward", f"a call of {name_of(call.function)} in {call.where} before it")
        self._has_ended = True

    def returned(self, block: Block) -> Tensor:
        """Return a result in the cut in which it leaves the network."""
        move = self._plan.results.get(block.about)
        if move is None:
            raise _unplanned("the network's result", "one that is cut as it was")
        return moved(block.local, move, self._here.coords, self._here.exchange)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call of torch as planned."""
        if function in OF_AUTOGRAD:
            bare = mapped((args, kwargs), _bare)
            return function(*bare[0], **bare[1])
        step = self._step(function, args, kwargs)
        if step is None:
            return self._cast(function, args, kwargs)
        blocks = {id(each.local): each for each in leaves((args, kwargs)) if isinstance(each, Block)}
        sources = [each.local for each in blocks.values()] if step.copies else []
        moves, cuts = iter(step.moves), iter(step.results)
        given = mapped((args, kwargs), lambda each: self._taken(each, next(moves)) if isinstance(each, Block) else each)
        result = step.action.run(function, given[0], given[1], self._here)

        def wrap(each: Any) -> Any:
            if not isinstance(each, Tensor):
                return each
            cut = next(cuts)
            same = blocks.get(id(each))
            if same is not None and same.about == cut and not step.copies:
                return same
            return self.wrapped(apart(each, sources) if step.copies else each, cut)

        return mapped(result, wrap)

    def applied(self, apply: Callable[..., Any], function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a custom autograd function as planned; those of torch's own wrappers pass blocks on as they are."""
        if not function.__module__.startswith("torch.distributed."):
            return self.call(Applied(function), args, kwargs)
        blocks = iter([each for each in leaves((args, kwargs)) if isinstance(each, Block)])
        bare = mapped((args, kwargs), _bare)
        result = apply(*bare[0], **bare[1])
        return mapped(result, lambda each: self._again(next(blocks), each) if isinstance(each, Tensor) else each)

    def _step(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PlannedCall | None:
        """Return how a call is carried out, None for a cast that was not recorded; raise where another one was."""
        if self._done < len(self._plan.sequence):
            call, likely = self._plan.sequence[self._done]
            if function is call.function and _fits(likely.described, (args, kwargs)):
                self._done += 1
                if likely.has_twin:
                    self._by_weight[_weight(args, kwargs)] = likely
                return likely
        step = self._plan.steps.get(key_of(function, *mapped((args, kwargs), _described)))
        if self._has_ended:
            if step is not None and step.has_twin:
                step = self._by_weight.get(_weight(args, kwargs))
            if step is None and function not in _CASTS:
                raise _unplanned(f"call of {name_of(function)} behind the forward pass", "calls of that pass")
            return step
        awaited, expected = self._plan.sequence[self._done] if self._done < len(self._plan.sequence) else (None, None)
        if step is not None and step is expected:
            self._done += 1
            return step
        if function not in _CASTS:
            told = "the end of forward" if awaited is None else f"{name_of(awaited.function)} in {awaited.where}"
            raise _unplanned(f"call {self._done + 1} of those that take blocks, {name_of(function)}", told)
        self._done += awaited is not None and function is awaited.function
        return None

    def _cast(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call that leaves every value where it is."""
        (block,) = [each for each in leaves((args, kwargs)) if isinstance(each, Block)][:1]
        bare = mapped((args, kwargs), _bare)
        return self._again(block, function(*bare[0], **bare[1]))

    def _again(self, block: Block, local: Tensor) -> Block:
        """Return a block with another tensor in its place, cut alike."""
        if local is block.local:
            return block
        return Block.of(local, tuple(block.about.shape), about=block.about, runner=self)

    def _taken(self, block: Block, move: Move | None) -> Tensor:
        return block.local if move is None else moved(block.local, move, self._here.coords, self._here.exchange)


def _applied(apply: Callable[..., Any], function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hand a call of a custom autograd function that takes blocks to whoever made them."""
    runner = runner_of(args, kwargs)
    return apply(*args, **kwargs) if runner is None else runner.applied(apply, function, args, kwargs)


WATCH = Watch(_applied)
"""Sees custom autograd functions that take blocks; a network that runs on blocks holds it, in backward passes too."""


def _weight(args: Any, kwargs: Any) -> int:
    """Return what tells the weight of a call from others: that of a layer is there for as long as the network is."""
    return next(
        (id(leaf) for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor) and type(leaf) is not Block), 0
    )


def _bare(leaf: Any) -> Any:
    return leaf.local if isinstance(leaf, Block) else leaf


def _described(leaf: Any) -> Any:
    if isinstance(leaf, Block):
        return leaf.about
    return (TENSOR, tuple(leaf.shape)) if isinstance(leaf, Tensor) else leaf


def _fits(expected: Any, given: Any) -> bool:
    """Tell whether arguments are those that were described; False where that takes a longer look, as for a NaN.

    It spares most calls the key by which they are looked up.
    """
    kind = type(given)
    if kind is Block:
        return expected is given.about or (type(expected) is Sharding and expected == given.about)
    if isinstance(given, Tensor):
        return type(expected) is tuple and expected == (TENSOR, tuple(given.shape))
    if isinstance(given, tuple | list):
        return (
            isinstance(expected, tuple | list)
            and len(expected) == len(given)
            and all(_fits(one, other) for one, other in zip(expected, given, strict=True))
        )
    if kind is dict:
        return (
            type(expected) is dict
            and expected.keys() == given.keys()
            and all(_fits(one, given[name]) for name, one in expected.items())
        )
    return kind in _PLAIN and kind is type(expected) and bool(expected == given)


_PLAIN = frozenset({int, float, bool, str, type(None), slice})
"""Arguments that equals tell apart."""


def _unplanned(subject: str, expected: str) -> UsageError:
    return UsageError(
        subject,
        found="another way through forward than the one that was recorded",
        expected=expected,
        remedy="let nothing but shapes, types, training modes and plain attributes of modules decide which way forward "
        "goes, on every rank alike, and register hooks before voxload.engine.shard",
    )
