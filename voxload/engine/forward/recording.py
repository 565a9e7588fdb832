"""Recording: what a network's own forward asks of torch for volumes of some extents, without voxels or messages.

The forward runs as it is, with blocks whose data are torch's fake tensors, which have shape, type and device and no
memory. So control flow on types, extents, attributes and training modes goes the way that it will go.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from voxload.engine.forward.block import Block
from voxload.engine.forward.trees import leaves, mapped
from voxload.engine.watched import functions_watched
from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that depends on what the network was given."""

    number: int
    """Tells it from others of the recording; a tensor that is written to keeps its number."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    storage: int = -1
    """Number of what holds it: views of one tensor have one."""


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that does not: a weight, a buffer, or one that was made on the way."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Call:
    """One call of torch that takes values."""

    function: Callable[..., Any]
    """What was called."""
    args: tuple[Any, ...]
    """As they were, with Value and Given in the places of tensors."""
    kwargs: Mapping[str, Any]
    """Likewise."""
    result: Any
    """Likewise."""
    where: str
    """Path of the innermost module that called it, and its class."""
    written: tuple[Value, ...] = ()
    """The values that it writes into."""

    @property
    def taken(self) -> tuple[Value, ...]:
        """The values that it takes, in order."""
        return tuple(each for each in leaves((self.args, dict(self.kwargs))) if isinstance(each, Value))

    @property
    def made(self) -> tuple[Value, ...]:
        """The values that it gives, in order."""
        return tuple(each for each in leaves(self.result) if isinstance(each, Value))


@dataclass(frozen=True, slots=True)
class Recording:
    """What a forward asks of torch."""

    given: tuple[Value, ...]
    """The volumes and other tensors that it was called with."""
    calls: tuple[Call, ...]
    """In order."""
    result: Any
    """What it returned, with Value in the places of tensors."""


def record(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Recording:
    """Return what ``model.forward`` asks of torch; modules, tensors and random numbers are left as they are.

    Parameters
    ----------
    model
        The network, in the training modes that count.
    args, kwargs
        What it is called with; of tensors only shape, type and device are looked at, and they are those of the whole.

    Raises
    ------
    UsageError
        Where forward asks for values, which no rank has all of, or fails on shapes alone.
    """
    # A copy: fake tensors let writes into buffers of one number through, and forward may keep what it likes.
    twin = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    recorder = _Recorder(twin)
    with (
        FakeTensorMode(allow_non_fake_inputs=True) as fake,
        torch.random.fork_rng(devices=[]),
        functions_watched(recorder.applied),
    ):
        try:
            blocks = mapped((tuple(args), dict(kwargs or {})), lambda each: recorder.begin(each, fake))
            given = tuple(each.about for each in leaves(blocks) if isinstance(each, Block))
            result = twin(*blocks[0], **blocks[1])
        except UsageError:
            raise
        except Exception as error:
            raise recorder.failed(error) from error
    return Recording(given, tuple(recorder.calls), recorder.described(result))


class _Recorder:
    """Writes down calls and carries them out on fake tensors."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._count = 0
        self._held: list[Tensor] = []
        self._storages: dict[int, int] = {}
        self.calls: list[Call] = []

    def begin(self, value: Any, fake: FakeTensorMode) -> Any:
        """Return a block in the place of a tensor."""
        if not isinstance(value, Tensor):
            return value
        local = fake.from_tensor(value.detach()).requires_grad_(value.is_floating_point())
        return self._block(local)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call of torch on shapes, and write it down."""
        if function in _OF_VALUES:
            raise UsageError(
                f"forward of {self._where()}",
                found=f"{_name(function)}, which asks for voxels' values",
                expected="the same operations whatever the values, which differ from rank to rank",
                remedy="decide outside of forward, or compute with torch.where",
            )
        if function in OF_AUTOGRAD:
            return function(*_bare(args), **_bare(kwargs))
        taken: tuple[tuple[Any, ...], dict[str, Any]] = self.described((args, kwargs))
        blocks = {id(each.local): each for each in leaves((args, kwargs)) if isinstance(each, Block)}
        before = [(each, each.local._version) for each in blocks.values()]  # noqa: SLF001 - torch has no public count of writes
        result = function(*_bare(args), **_bare(kwargs))
        written = tuple(each.about for each, version in before if each.local._version != version)  # noqa: SLF001 - as above
        # What is written to in place is given back, and stays the block that it was.
        made = mapped(result, lambda each: blocks[id(each)] if id(each) in blocks else self._wrapped(each))
        self.calls.append(Call(function, *taken, self.described(made), self._where(), written))
        return made

    def applied(self, apply: Any, function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002 - the watch's signature
        """Let calls of custom autograd functions be written down like those of torch, which they are not."""
        is_watched = any(isinstance(each, Block) for each in leaves((args, kwargs)))
        return self.call(apply, args, kwargs) if is_watched else apply(*args, **kwargs)

    def described(self, tree: Any) -> Any:
        """Return arguments or results with what is known of tensors in their places."""
        return mapped(tree, _described)

    def failed(self, error: Exception) -> UsageError:
        """Return the refusal of a forward that ended in an error."""
        reason = next(iter(str(error).splitlines()), "")
        return UsageError(
            f"forward of {type(self._model).__name__}",
            found=f"{type(error).__name__} when it runs on shapes alone: {reason}",
            expected="a forward that runs on a whole volume of this shape and decides nothing by its values",
            remedy="try the model itself on such a volume",
        )

    def _block(self, local: Tensor) -> Block:
        self._held.append(local)  # or what holds another one would get its number
        storage = self._storages.setdefault(local.untyped_storage()._cdata, len(self._storages))  # noqa: SLF001 - fake ones have no address
        value = Value(self._count, tuple(local.shape), local.dtype, storage)
        self._count += 1
        return Block.of(local, local.shape, about=value, runner=self)

    def _wrapped(self, result: Any) -> Any:
        return self._block(result) if isinstance(result, Tensor) and not isinstance(result, Block) else result

    def _where(self) -> str:
        """Return the path and class of the innermost module of the network that is at work."""
        frame = sys._getframe(1)  # noqa: SLF001 - the way to see who calls
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and id(owner) in self._paths:
                return f"{self._paths[id(owner)] or 'the root'!r} ({type(owner).__name__})"
            frame = frame.f_back  # type: ignore[assignment] # the outermost has none
        return type(self._model).__name__


def _described(value: Any) -> Any:
    if isinstance(value, Block):
        return value.about
    return Given(tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


def _bare(tree: Any) -> Any:
    """Return arguments with what blocks stand on in their places."""
    return mapped(tree, lambda each: each.local if isinstance(each, Block) else each)


def _name(function: Callable[..., Any]) -> str:
    return str(torch.overrides.resolve_name(function) or function)


def _methods(*names: str) -> frozenset[Any]:
    return frozenset(getattr(Tensor, name) for name in names)


_OF_VALUES = _methods(
    *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__contains__", "item", "tolist"),
    *("numpy", "data_ptr", "nonzero", "is_nonzero", "equal", "allclose", "storage", "untyped_storage", "__reduce_ex__"),
) | {torch.equal, torch.allclose, torch.nonzero, torch.is_nonzero}
"""Functions whose result is values, or shapes that follow from values."""
OF_AUTOGRAD: frozenset[Any] = frozenset(
    [*(getattr(Tensor, name).__get__ for name in ("requires_grad", "grad_fn", "is_leaf")), Tensor.register_hook]
)
"""Functions that what a block stands on answers for it."""
