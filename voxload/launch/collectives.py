"""Collectives of values: what ranks tell each other through torch.distributed, as checked JSON and tensors.

torch's own calls for objects send pickles, which run whatever their sender put into them. Nothing here is unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.errors import DataError, InternalError, NotFoundError, StorageError, UsageError, VoxloadError
from voxload.launch.wire import LONGEST, decode, encode

T = TypeVar("T")

_ERRORS = {kind.__name__: kind for kind in (UsageError, NotFoundError, DataError, StorageError, InternalError)}
_DTYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
"""Types of tensors that are sent, by name."""
_TENSOR, _ITEMS, _TUPLE, _BYTES = "tensor", "items", "tuple", "bytes"


@dataclass(frozen=True, slots=True)
class _Told:
    """The first part of what one rank tells the others: a tree without its tensors, or an error in its place."""

    tree: Any
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    """Type and shape of each, in the order in which they follow."""
    error: tuple[str, str] | None
    """Class and message."""


def all_gathered(mine: T, kind: Any, *, group: Any = None) -> list[T]:
    """Return what every rank of a process group gave, by rank; `[mine]` where torch.distributed does not run.

    Parameters
    ----------
    mine
        A value that `wire.encode` takes.
    kind
        The type that every rank's must have, as `wire.decode` takes it.
    group
        All ranks of it call this; the whole job by default.

    Raises
    ------
    InternalError
        On every rank, when one gave something else, or more than `wire.LONGEST` bytes.
    RuntimeError
        torch's own, when a rank does not come.
    """
    if not dist.is_initialized():
        return [mine]
    place, data = _device(group), encode(mine)
    ranks = dist.get_world_size(group)
    counts = [torch.zeros(1, dtype=torch.int64, device=place) for _ in range(ranks)]
    dist.all_gather(counts, torch.tensor([len(data)], device=place), group=group)
    lengths = [int(count) for count in counts]
    for rank, length in enumerate(lengths):
        if not 0 < length <= LONGEST:
            raise _odd(rank, f"{length} bytes", f"1 to {LONGEST}")
    texts = [torch.zeros(max(lengths), dtype=torch.uint8, device=place) for _ in range(ranks)]
    dist.all_gather(texts, _padded(data, max(lengths)).to(place), group=group)
    found: list[T] = []
    for rank, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        try:
            found.append(decode(text[:length].cpu().numpy().tobytes(), kind))
        except DataError as error:
            raise _odd(rank, str(error), "what this rank would have said") from error
    return found


def broadcast_from_first(make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return what rank 0 makes, on every rank of the job; all raise the VoxloadError that making it raises.

    Parameters
    ----------
    make
        Called on rank 0 alone: a mapping of plain values, tuples, lists, mappings and tensors.

    Raises
    ------
    InternalError
        When what came is no such thing.
    """
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    tensors: list[Tensor] = []
    told, failure = _Told(None, (), None), None
    if is_first:
        try:
            values = make()
            if not dist.is_initialized():
                return dict(values)
            tree = _flat(values, tensors)
            told = _Told(tree, tuple((str(t.dtype).removeprefix("torch."), tuple(t.shape)) for t in tensors), None)
        except VoxloadError as error:
            if not dist.is_initialized():
                raise
            failure, told = error, _Told(None, (), (type(error).__name__, str(error)))
    told = _first_part(told, is_first=is_first)
    if failure is not None:
        raise failure
    if told.error is not None:
        name, message = told.error
        raise _ERRORS.get(name, InternalError)(message)
    came = [_broadcast(tensor) for tensor in (tensors if is_first else map(_empty, told.tensors))]
    found: dict[str, Any] = _whole(told.tree, came)
    return found


def _first_part(mine: _Told, *, is_first: bool) -> _Told:
    """Return the first part as rank 0 has it."""
    data = encode(mine) if is_first else b""
    length = int(_broadcast(torch.tensor([len(data)])))
    if not 0 < length <= LONGEST:
        raise _odd(0, f"{length} bytes", f"1 to {LONGEST}")
    text = _broadcast(_padded(data, length))
    if is_first:
        return mine
    try:
        return decode(text.numpy().tobytes(), _Told)
    except DataError as error:
        raise _odd(0, str(error), "a tree and its tensors") from error


def _broadcast(tensor: Tensor) -> Tensor:
    """Return rank 0's tensor, on the host."""
    place = _device(None)
    sent = tensor.detach().contiguous().to(place)
    # As bytes: not every backend sends every type.
    dist.broadcast(sent.reshape(-1).view(torch.uint8), src=0)
    return sent.to("cpu")


def _empty(told: tuple[str, tuple[int, ...]]) -> Tensor:
    name, shape = told
    if name not in _DTYPES or min(shape, default=0) < 0:
        raise _odd(0, f"a tensor of {name}, shape {shape}", "numbers")
    try:
        return torch.empty(shape, dtype=_DTYPES[name])
    except (RuntimeError, TypeError) as error:
        raise _odd(0, f"a tensor of {prod(shape)} elements", "as many as there is memory for") from error


def _flat(value: Any, tensors: list[Tensor]) -> Any:
    """Return a tree as plain values, and put its tensors into `tensors`."""
    if isinstance(value, Tensor):
        if value.dtype not in _DTYPES.values():
            raise TypeError(f"a tensor of {value.dtype} is not sent")
        tensors.append(value)
        return {_TENSOR: len(tensors) - 1}
    if isinstance(value, Mapping):
        return {_ITEMS: [[_flat(key, tensors), _flat(each, tensors)] for key, each in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_flat(each, tensors) for each in value]}
    if isinstance(value, list):
        return [_flat(each, tensors) for each in value]
    return {_BYTES: list(value)} if isinstance(value, bytes) else value


def _whole(tree: Any, tensors: Sequence[Tensor]) -> Any:
    """Return the tree that `_flat` was given."""
    if isinstance(tree, list):
        return [_whole(each, tensors) for each in tree]
    if not isinstance(tree, dict):
        return tree
    try:
        ((form, content),) = tree.items()
        if form == _TENSOR:
            return tensors[content]
        if form == _BYTES:
            return bytes(content)
        parts = [_whole(each, tensors) for each in content]
        return tuple(parts) if form == _TUPLE else dict(parts)
    except (ValueError, TypeError, IndexError) as error:
        raise _odd(0, str(error), "a tree and its tensors") from error


def _padded(data: bytes, length: int) -> Tensor:
    text = torch.zeros(length, dtype=torch.uint8)
    if data:
        text[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return text


def _device(group: Any) -> torch.device:
    """Return where a group's backend wants its tensors."""
    return torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")


def _odd(rank: int, found: str, expected: str) -> InternalError:
    return InternalError(
        f"what rank {rank} told the others", found=found, expected=expected, remedy="run one voxload on all ranks"
    )
