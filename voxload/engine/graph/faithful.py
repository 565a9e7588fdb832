"""Faithfulness: whether the operations that a trace recorded compute what ``forward`` itself computes.

A trace follows a stand-in, so a ``forward`` that asks for the type of a value (``isinstance``, ``torch.is_tensor``), or
writes in place into a volume that it uses again, leaves a trace of something else, without any error. Both are run here
and every value gets a number that follows from the operation and the numbers of its operands, views and writes in
place included (value numbering; Alpern, Wegman and Zadeck 1988). Equal numbers are equal computations. No voxel is
computed where that would take long: then both run on torch's meta device, which knows shapes alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn, overrides
from torch.utils import _pytree

from voxload.engine.model.meta_runs import CHANNEL_NAMES
from voxload.errors import UsageError

_MULTIPLICATIONS = 2**26
"""Voxels times parameters up to which a network is computed: hundredths of a second. Torch's first convolution on the
meta device costs more, since it loads a library of symbols."""
_BATCH = 2
"""Samples: a normalisation in training refuses a batch of one where nothing is left of the extents."""
_EXTENTS = (16, 32, 64)
"""Extents that are tried, in this order, for a network that was given without a shape."""
_CHANNELS = (1, 2, 3, 4)
"""Channels that are tried for a network whose first layer does not tell."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A volume to compare with: channels and extents."""

    channels: int
    shape: tuple[int, ...]

    @property
    def size(self) -> tuple[int, ...]:
        """Extents of a batch of it."""
        return _BATCH, self.channels, *self.shape


def require_faithful(model: nn.Module, graph: fx.Graph, sample: Sample) -> None:
    """Raise UsageError unless `graph` computes what ``model.forward`` computes of a volume like `sample`.

    Compared are results and what is written into buffers, with and without gradient mode, and under autocast. The model
    is left as it is; random numbers are too. Not thread-safe, as tracing is not.

    Raises
    ------
    UsageError
        When they differ, naming the first operation that does, or when ``forward`` does not take such a volume.
    """
    if sample_error := _compare(model, graph, sample):
        raise UsageError(
            f"forward of {type(model).__name__}",
            found=f"{type(sample_error).__name__} for a volume of shape {sample.size}: {_line(sample_error)}",
            expected="a forward that runs on a whole volume, to be compared with what was traced of it",
            remedy="try the model itself on such a volume",
        ) from sample_error


def is_faithful(model: nn.Module, graph: fx.Graph, shape: Sequence[int] | None) -> bool:
    """Compare as `require_faithful` does, for a number of channels and, where unknown, extents that the model takes.

    Returns False where none was found: then the first volume has to tell.
    """
    wanted = _first_channels(model, graph)
    shapes = [tuple(shape)] if shape is not None else [(extent,) * 3 for extent in _EXTENTS]
    samples = [Sample(channels, each) for each in shapes for channels in wanted]
    return any(_compare(model, graph, sample) is None for sample in samples)


def _compare(model: nn.Module, graph: fx.Graph, sample: Sample) -> Exception | None:
    """Return what ``forward`` raises for the sample, if it does; raise UsageError where the trace differs."""
    for mode in (_Mode(gradients=True), _Mode(), _Mode(autocast=True)):
        try:
            original = _record(model, None, sample, mode)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - what a stranger's forward raises for a size that it does not take
            if mode.autocast:  # some losses refuse it, and would in training
                continue
            return error
        try:
            traced = _record(model, graph, sample, mode)
        except Exception as error:
            raise _refusal(model, f"a trace that ends in {type(error).__name__}: {_line(error)}") from error
        if original.result != traced.result:
            raise _refusal(model, _difference(original.operations, traced.operations))
    return None


@dataclass(frozen=True, slots=True)
class _Mode:
    """Under what a network runs."""

    gradients: bool = False
    autocast: bool = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enter it. Autocast is to the type that the network has: what counts is who asks whether it is on."""
        with ExitStack() as left:
            left.enter_context(torch.set_grad_enabled(self.gradients))
            for device in ("cpu", "cuda") if self.autocast else ():
                left.callback(torch.set_autocast_dtype, device, torch.get_autocast_dtype(device))
                left.callback(torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
                torch.set_autocast_dtype(device, torch.float32)
                torch.set_autocast_enabled(device, self.autocast)
            yield


@dataclass(frozen=True, slots=True)
class _Record:
    """What a run computed."""

    operations: list[tuple[str, int]]
    """Each operation's name and the number of its result, in order."""
    result: tuple[Any, ...]
    """Numbers of the result's tensors, what else it holds, its structure, and numbers of the buffers afterwards."""


def _record(model: nn.Module, graph: fx.Graph | None, sample: Sample, mode: _Mode) -> _Record:
    """Run a copy of the model, or what was traced of it, on a volume."""
    weights = list(model.parameters())
    on_host = all(type(weight.data) is Tensor and weight.device.type == "cpu" for weight in weights)
    multiplications = prod(sample.size) * sum(weight.numel() for weight in weights)
    device = "cpu" if on_host and multiplications <= _MULTIPLICATIONS else "meta"
    dtype = next((weight.dtype for weight in weights if weight.is_floating_point()), torch.get_default_dtype())
    x = torch.zeros(sample.size, dtype=dtype, device=device)
    twin = _on(device, model)
    numbers = _Numbers()
    numbers.name(x, "volume")
    for name, tensor in (*twin.named_parameters(), *twin.named_buffers()):
        numbers.name(tensor, name)
    run = twin if graph is None else fx.Interpreter(twin, graph=graph).run
    with torch.random.fork_rng(devices=[]), mode.entered(), numbers:
        result = run(x)
    values, structure = _pytree.tree_flatten(result)
    found = tuple(numbers.of(value) if isinstance(value, Tensor) else repr(value) for value in values)
    kept = tuple(numbers.of(buffer) for buffer in twin.buffers())
    return _Record(numbers.operations, (found, repr(structure), kept))


def _on(device: str, model: nn.Module) -> nn.Module:
    """Return a copy of the model that other threads do not see, with parameters and buffers on `device`."""
    held: dict[int, Any] = {}
    for weight in model.parameters():
        data = (
            weight.detach().clone() if device == "cpu" else torch.empty(weight.shape, dtype=weight.dtype, device=device)
        )
        held[id(weight)] = nn.Parameter(data, requires_grad=weight.requires_grad)
    for buffer in model.buffers():
        # Single numbers, such as a count of batches, are read by forward; they cost nothing. Torch mixes those without
        # an axis with tensors of any device, but not the mean of a normalisation of one channel.
        place = "cpu" if not buffer.ndim else device
        own = torch.zeros_like(buffer, device=place) if buffer.is_meta else buffer.detach().to(place, copy=True)
        held[id(buffer)] = own
    for module in model.modules():
        if isinstance(module, nn.SyncBatchNorm) and module.process_group is not None:
            held[id(module.process_group)] = module.process_group  # a handle, which no copy can have
    twin = copy.deepcopy(model, held)
    for module in twin.modules():
        if type(module) is nn.SyncBatchNorm:
            module.__class__ = nn.BatchNorm3d  # type: ignore[assignment] # torch's runs on GPUs alone; of one process both compute the same
    return twin


class _Numbers(overrides.TorchFunctionMode):
    """Gives each value a number while it is entered; two runs that compute alike give the same ones."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, int]] = []
        self._stored: dict[int, int] = {}
        self._kept: list[Tensor] = []

    def name(self, tensor: Tensor, name: str) -> None:
        """Give a tensor that is there before the run the number of its name."""
        self._stored[self._key(tensor)] = hash(name)

    def of(self, tensor: Tensor) -> int:
        """Return the number of a tensor: of what its storage holds, and which part it shows."""
        held = self._stored.setdefault(self._key(tensor), hash(("constant", len(self._stored))))
        return hash((held, *_geometry(tensor)))

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run one call of torch and number what it makes and what it writes to.

        Random draws of one input get one number: which of two was used is all that would stay unseen.
        """
        leaves = _pytree.tree_leaves((args, dict(sorted((kwargs or {}).items()))))
        given = [each for each in leaves if isinstance(each, Tensor)]
        before = [(self.of(each), each._version) for each in given]  # noqa: SLF001 - torch has no public count of writes
        numbers = iter(before)
        operands = [next(numbers)[0] if isinstance(each, Tensor) else repr(each) for each in leaves]
        result = func(*args, **(kwargs or {}))
        name = _name(func)
        value = hash((name, *operands))
        # A view that was given shares its count of writes with its base, so each storage is looked at once.
        written = {
            self._key(each): each
            for each, (_, version) in zip(given, before, strict=True)
            if each._version != version  # noqa: SLF001 - as above
        }
        made = [each for each in _pytree.tree_leaves(result) if isinstance(each, Tensor)]
        for index, tensor in enumerate(made):
            key = self._key(tensor)
            if key not in self._stored or (key in written and _covers(tensor)):
                self._stored[key] = hash((value, index))
                written.pop(key, None)
        for index, (key, tensor) in enumerate(written.items()):
            self._stored[key] = hash((self._stored[key], _geometry(tensor), value, index))
        if made or written:
            self.operations.append((name, value))
        return result

    def _key(self, tensor: Tensor) -> int:
        self._kept.append(tensor)  # or its storage's address would be given to another one
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - meta storages have no address to tell them by


def _name(func: Any) -> str:
    """Return a function's name. Those that write in place are called as those that do not: they compute the same."""
    name = str(overrides.resolve_name(func) or repr(func))
    head, _, last = name.rpartition(".")
    if last.startswith("__i") and last.endswith("__") and f"__{last[3:]}" in dir(Tensor):
        last = f"__{last[3:]}"
    elif not last.endswith("__"):
        last = last.removesuffix("_")
    return f"{head}.{last}"


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    """Return which part of its storage a tensor shows, and as what."""
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), str(tensor.dtype)


def _covers(tensor: Tensor) -> bool:
    """Tell whether a tensor shows all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _first_channels(model: nn.Module, graph: fx.Graph) -> Sequence[int]:
    """Return the channels of the network's first layer; where it does not tell, those to try."""
    volume = next(node for node in graph.nodes if node.op == "placeholder")
    for node in _reached(volume):
        layer = model.get_submodule(str(node.target)) if node.op == "call_module" else None
        for name in CHANNEL_NAMES:
            if isinstance(found := getattr(layer, name, None), int):
                return (found,)
    return _CHANNELS


def _reached(volume: fx.Node) -> Iterator[fx.Node]:
    """Yield the operations that use the volume, and those behind them as long as each takes nothing else, in order."""
    waiting = [volume]
    while waiting:
        users = list(waiting.pop(0).users)
        yield from users
        waiting += [node for node in users if len(node.all_input_nodes) == 1]


def _difference(original: list[tuple[str, int]], traced: list[tuple[str, int]]) -> str:
    """Return where two runs part."""
    for number, (one, other) in enumerate(zip(original, traced, strict=False), start=1):
        if one != other:
            alike = "another input of " if one[0] == other[0] else f"{one[0]} in forward, "
            return f"{alike}{other[0]} in its trace, as operation {number}"
    longer, where = (original, "in forward") if len(original) > len(traced) else (traced, "in its trace")
    shorter = min(len(original), len(traced))
    return f"{longer[shorter][0]} {where} alone, as operation {shorter + 1}" if shorter < len(longer) else "its result"


def _refusal(model: nn.Module, found: str) -> UsageError:
    return UsageError(
        f"forward of {type(model).__name__}",
        found=f"another computation than its trace: {found}",
        expected="the same operations whatever the Python type of a value, and no volume that is changed in place and "
        "used again under another name",
        remedy="take isinstance, torch.is_tensor, torch.jit.isinstance and in-place writes to shared volumes out of it",
    )


def _line(error: Exception) -> str:
    """Return the first line of an error's message; torch.fx adds where it was."""
    return next(iter(str(error).splitlines()), "")
