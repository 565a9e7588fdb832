"""Recording: what a network's own forward asks of torch for volumes of some extents, without voxels or messages.

The forward runs as it is, with blocks whose data are torch's fake tensors, which have shape, type and device and no
memory. So control flow on types, extents, attributes and training modes goes the way that it will go.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.checkpoint import CheckpointFunction

from voxload.engine.forward.block import Block, runner_of
from voxload.engine.forward.inputs import Inputs, TensorSpec
from voxload.engine.model.meta_runs import fast_paths_off, random_state_kept
from voxload.engine.model.pytrees import Leaf, leaves, mapped
from voxload.engine.model.skeleton import Skeleton
from voxload.engine.run.autograd_functions import Applied, functions_watched
from voxload.errors import UsageError

_OF_DEVICES: tuple[Any, ...] = (Tensor.device.__get__, torch.device)
"""What asks for a tensor's device, and what names one. Fake tensors answer by themselves, and no mode sees it.

Checkpointing names that of tensors without data, which the plain run has.
"""


class CallLog(TorchFunctionMode):
    """Writes down calls of torch while it is entered: functions, shapes of tensors, and arguments that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.is_cut_short = False
        """Whether the run could not come to its end: what it did not come to is not compared."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Write one call down and carry it out."""
        if func in _OF_DEVICES:
            return func(*args, **(kwargs or {}))
        given = [_argument_text(leaf) for leaf in leaves((args, kwargs or {}))]
        self.calls.append((str(resolve_name(func) or getattr(func, "__name__", func)), " ".join(given)))
        return func(*args, **(kwargs or {}))

    def difference(self, other: CallLog) -> str:
        """Return where another run parts from this one; empty where it does not."""
        for number, (one, two) in enumerate(zip(self.calls, other.calls, strict=False), start=1):
            if one != two:
                told = one[0] if one[0] == two[0] else f"{one[0]} and not {two[0]}"
                return f"{told}, as call {number}"
        if len(self.calls) != len(other.calls) and not other.is_cut_short:
            return f"{len(self.calls)} calls and not {len(other.calls)}"
        return ""


def _argument_text(leaf: Any) -> str:
    """Return what counts of an argument."""
    if isinstance(leaf, Tensor):
        return str(tuple(leaf.shape))
    is_plain = isinstance(leaf, bool | int | float | complex | str | type(None) | slice)
    return repr(leaf) if is_plain else type(leaf).__name__


@dataclass(frozen=True, slots=True)
class Value(Leaf):
    """A tensor that depends on what the network was given."""

    number: int
    """Tells it from others of the recording; a tensor that is written to keeps its number."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    storage: int = -1
    """Number of what holds it: views of one tensor have one."""


@dataclass(frozen=True, slots=True)
class Given(Leaf):
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
    path: str = ""
    """Path of the innermost module of the network that called it; empty for the network itself."""

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

    def users(self) -> Mapping[int, Sequence[int]]:
        """Return the places of the calls that take each value, by its number; none of values that nobody takes."""
        found = defaultdict[int, list[int]](list)
        for index, call in enumerate(self.calls):
            for value in call.taken:
                found[value.number].append(index)
        return found

    def described(self) -> str:
        """Return it as text, the same in every process."""
        return "\n".join(
            " ".join((name_of(each.function), *map(_text, leaves((each.args, dict(each.kwargs), each.result)))))
            for each in self.calls
        )


def record(skeleton: Skeleton, network: nn.Module, inputs: Inputs) -> Recording:
    """Return what a network's forward asks of torch; modules, tensors and random numbers are left as they are.

    Parameters
    ----------
    skeleton, network
        What the network is, in the training modes that count, and the network, for its tensors' types and devices.
    inputs
        What it is called with, tensors with the shapes of the whole.

    Raises
    ------
    UsageError
        Where forward asks for values, which no rank has all of, fails on shapes alone, or goes another way for a block
        than for a plain tensor.
    """
    given = (inputs.args, dict(inputs.kwargs))
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    twin = skeleton.filled(fake, network)
    recorder = _Recorder(twin)
    asked, plain = CallLog(), CallLog()
    with _left_alone(), fake, functions_watched(recorder.applied):
        blocks = mapped(given, recorder.begin)
        values = tuple(each.about for each in leaves(blocks) if isinstance(each, Block))
        result = recorder.ran(twin, blocks, asked)
    _run_plain(skeleton.plain(), given, plain)
    if difference := asked.difference(plain):
        raise UsageError(
            f"forward of {type(twin).__name__}",
            found=f"another way for a block of a volume than for a plain tensor: {difference}",
            expected="the same calls of torch for every torch.Tensor",
            remedy="ask isinstance(x, torch.Tensor), not for the very class",
        )
    return Recording(values, tuple(recorder.calls), recorder.described(result))


_META = torch.device("meta")


def _run_plain(model: nn.Module, given: Any, asked: CallLog) -> None:
    """Run a model on tensors of the very class ``torch.Tensor``, which have shapes only, as far as it gets."""
    with _left_alone(), torch.device("meta"):
        tensors = mapped(
            given, lambda leaf: _made(replace(leaf, device=_META) if isinstance(leaf, TensorSpec) else leaf)
        )
        try:
            with asked:
                model(*tensors[0], **tensors[1])
        except Exception:  # noqa: BLE001 - some operations have no form without values, which is no fault of forward's
            asked.is_cut_short = True


@contextmanager
def _left_alone() -> Iterator[None]:
    """Put random numbers back afterwards; raise UsageError where forward drew others than torch's.

    Tensors of inference mode do not tell that they were written into, and are none here.
    """
    is_recording = torch.is_grad_enabled()
    with (
        random_state_kept() as drawn,
        fast_paths_off(),
        torch.inference_mode(mode=False),
        torch.set_grad_enabled(is_recording),
    ):
        yield
    if drawn.others:
        raise UsageError(
            "forward of a split network",
            found="random numbers of Python or numpy, which differ from rank to rank",
            expected="those of torch, which the engine gives to all ranks alike",
            remedy="draw them with torch, and compute with them",
        )


def _made(leaf: Any) -> Any:
    """Return a tensor in the place of its description."""
    if not isinstance(leaf, TensorSpec):
        return leaf
    made = torch.empty(leaf.shape, dtype=leaf.dtype, device=leaf.device)
    return made.requires_grad_(leaf.requires_grad)


class _Recorder:
    """Writes down calls and carries them out on fake tensors."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._count = 0
        self._held: list[Tensor] = []
        self._storages: dict[int, int] = {}
        self.calls: list[Call] = []

    def begin(self, leaf: Any) -> Any:
        """Return a block in the place of a tensor's description."""
        return self._block(_made(leaf)) if isinstance(leaf, TensorSpec) else leaf

    def ran(self, model: nn.Module, given: tuple[tuple[Any, ...], dict[str, Any]], asked: CallLog) -> Any:
        """Return what forward gives, and have what it asks of torch written down; raise UsageError where it fails."""
        try:
            with asked:
                return model(*given[0], **given[1])
        except UsageError:
            raise
        except Exception as error:
            raise self.failed(error) from error

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a call of torch on shapes, and write it down."""
        if function in _OF_VALUES:
            raise UsageError(
                f"forward of {self._where()}",
                found=f"{name_of(function)}, which asks for voxels' values",
                expected="the same operations whatever the values, which differ from rank to rank",
                remedy="decide outside of forward, or compute with torch.where",
            )
        if function in OF_AUTOGRAD:
            return function(*_bare(args), **_bare(kwargs))
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - what is asked here is not what forward asks
            taken: tuple[tuple[Any, ...], dict[str, Any]] = self.described((args, kwargs))
            blocks = {id(each.local): each for each in leaves((args, kwargs)) if isinstance(each, Block)}
            before = [(each, each.local._version) for each in blocks.values()]  # noqa: SLF001 - torch has no public count of writes
        result = function(*_bare(args), **_bare(kwargs))
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - as above
            written = tuple(each.about for each, version in before if each.local._version != version)  # noqa: SLF001 - as above
            # What is written to in place is given back, and stays the block that it was.
            made = mapped(result, lambda each: blocks[id(each)] if id(each) in blocks else self._wrapped(each))
            self.calls.append(Call(function, *taken, self.described(made), self._where(), written, self._caller()[0]))
        return made

    def applied(self, apply: Any, function: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let calls of custom autograd functions be written down like those of torch, which they are not."""
        if runner_of(args, kwargs) is None:
            return apply(*args, **kwargs)
        if function is CheckpointFunction:
            raise UsageError(
                f"torch.utils.checkpoint in forward of {self._where()}",
                found="use_reentrant=True",
                expected="use_reentrant=False, of which the engine sees every call",
            )
        return self.call(Applied(function), args, kwargs)

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
        path, module = self._caller()
        if module is None:
            return type(self._model).__name__
        return f"{path or 'the root'!r} ({type(module).__name__})"

    def _caller(self) -> tuple[str, nn.Module | None]:
        """Return that module and its path; the network's own, which is empty, and None where none is."""
        frame = sys._getframe(1)  # noqa: SLF001 - the way to see who calls
        while frame is not None:
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and id(owner) in self._paths:
                return self._paths[id(owner)], owner
            frame = frame.f_back  # type: ignore[assignment] # the outermost has none
        return "", None


def _described(value: Any) -> Any:
    if isinstance(value, Block):
        return value.about
    return Given(tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


def _bare(tree: Any) -> Any:
    """Return arguments with what blocks stand on in their places."""
    return mapped(tree, lambda each: each.local if isinstance(each, Block) else each)


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function of torch, or of a custom autograd function."""
    if isinstance(function, Applied):
        return function.function.__name__
    return str(torch.overrides.resolve_name(function) or getattr(function, "__name__", function))


def _text(leaf: Any) -> str:
    is_plain = isinstance(leaf, Leaf | bool | int | float | complex | str | type(None) | torch.dtype | slice)
    return repr(leaf) if is_plain else type(leaf).__name__


def _methods(*names: str) -> frozenset[Any]:
    return frozenset(getattr(Tensor, name) for name in names)


_OF_VALUES = _methods(
    *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__", "__contains__", "item", "tolist"),
    *("numpy", "data_ptr", "nonzero", "is_nonzero", "equal", "allclose", "storage", "untyped_storage", "__reduce_ex__"),
) | {torch.equal, torch.allclose, torch.nonzero, torch.is_nonzero}
"""Functions whose result is values, or shapes that follow from values."""
OF_AUTOGRAD: frozenset[Any] = frozenset(
    [
        *(
            getattr(Tensor, name).__get__
            for name in ("requires_grad", "grad_fn", "is_leaf", "retains_grad", "output_nr", "_base", "_version")
        ),
        *(Tensor.register_hook, Tensor.register_post_accumulate_grad_hook, Tensor.retain_grad),
    ]
)
"""Functions that what a block stands on answers for it."""
