"""Measured: how long operations take that are like those that were measured on a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from statistics import median
from typing import Any

import numpy as np
import torch

from voxload.engine.observe import Messages
from voxload.errors import UsageError
from voxload.plan.costs.surface import Floats, Surface, Terms
from voxload.plan.trace.operation import Operation, Phase
from voxload.plan.trace.stencils import CONVOLUTION, CONVOLUTION_BACKWARD

ANY = "any other operation"
"""Kind of those that were not measured by name."""
_PRODUCTS = frozenset({"aten.addmm", "aten.mm", "aten.bmm"})
_BLOCK, _BOTH = 16.0, 2
_MAPPED = 2**25
"""Bytes of memory from which on it comes from the system each time."""
_ASKED = 2**22
"""Voxels of a tensor, at most, that torch is asked with: what is larger it treats as what is this large."""


@dataclass(frozen=True, slots=True)
class KernelPoints:
    """What was measured of one kind of operation."""

    kind: str
    points: tuple[tuple[float, ...], ...]
    seconds: tuple[float, ...]


@dataclass(slots=True)
class Measured:
    """Kernels as they were measured; used by one thread.

    Parameters
    ----------
    surfaces
        By kind.
    overheads
        Seconds from one operation to the next, by the part of the step: what Python and autograd take.
    device
        Type of the device that was measured.
    """

    surfaces: Mapping[str, Surface]
    overheads: dict[Phase, float]
    device: str
    slowdown: float = 1.0
    """How many ranks share what one had when operations were measured."""
    unknown: dict[str, float] = field(default_factory=dict)
    """Seconds of operations that were not measured, or only at other sizes, by kind, as far as they were asked for."""
    _found: dict[Any, tuple[float, str]] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """Median over kinds of how far off one operation is, as a share of it; convolutions alone where there are."""
        heavy = [each.error for kind, each in self.surfaces.items() if "conv" in kind]
        return float(median(heavy or [each.error for each in self.surfaces.values()]))

    def seconds(self, operation: Operation) -> float:
        """See `voxload.plan.costs.speeds.Kernels`."""
        if operation.exchanged is not None:
            # A block is copied to be joined with its halos; sums are small.
            is_joined = isinstance(operation.exchanged, Messages)
            return self.copying(plain_point(operation)) * self.slowdown if is_joined else 0.0
        key = (operation.name, operation.shapes, operation.results, operation.settings, operation.moved)
        if key not in self._found:
            self._found[key] = self._look_up(operation)
        seconds, outside = self._found[key]
        if outside:
            self.unknown[outside] = self.unknown.get(outside, 0.0) + seconds
        return max(0.0, seconds + self.overheads.get(operation.phase, 0.0)) * self.slowdown

    def copying(self, point: tuple[float, float]) -> float:
        """Return how long it takes to read and write so many bytes, so many of them anew, where nobody shares."""
        return self.surfaces[ANY].at(point)

    def _look_up(self, operation: Operation) -> tuple[float, str]:
        point = point_of(operation)
        if not all(point):  # of tensors without elements, as ranks have that take no part in a layer
            return 0.0, ""
        kind = kind_of(operation, self.device)
        surface = self.surfaces.get(kind)
        if surface is None or (not operation.flops and not surface.is_measured(point)):
            if operation.flops:
                raise UsageError(
                    kind,
                    found="never measured on this machine",
                    expected=", ".join(sorted(self.surfaces)),
                    remedy="run voxload plan calibrate on it again, with this version",
                )
            return self.surfaces[ANY].at(plain_point(operation)), kind
        return surface.at(point), "" if surface.is_measured(point) else kind


def measured(points: Iterable[KernelPoints], overheads: dict[Phase, float], device: str) -> Measured:
    """Return kernels that follow from points."""
    return Measured(_surfaces(tuple(points)), overheads, device)


@lru_cache(maxsize=4)
def _surfaces(points: tuple[KernelPoints, ...]) -> Mapping[str, Surface]:
    """Return what is told of each kind: the same for all numbers of ranks, and a second's work."""
    return {each.kind: Surface(each.points, each.seconds, _terms_of(each.kind)) for each in points}


def _terms_of(kind: str) -> Terms:
    name = kind.partition(" ")[0]
    if name in (CONVOLUTION, CONVOLUTION_BACKWARD):
        return _convolution_terms
    return _product_terms if name in _PRODUCTS else _plain_terms


def _plain_terms(points: Floats) -> Floats:
    """Return a start, the bytes that are moved, and those of fresh memory."""
    moved, made = points.T
    return np.stack([np.ones(len(points)), moved, made, _mapped(made)], 1)


def _mapped(nbytes: Floats) -> Floats:
    """Return the bytes that come from the system each time, one page after the other.

    glibc's malloc hands smaller pieces on from before (M_MMAP_THRESHOLD in mallopt(3); it grows up to 32 MiB).
    """
    return np.where(nbytes >= _MAPPED, nbytes, 0.0)


def _product_terms(points: Floats) -> Floats:
    """Return a start, the operations, and the elements of the three matrices."""
    rows, inner, columns = points.T
    elements = rows * inner + inner * columns + rows * columns
    return np.stack([np.ones(len(points)), rows * inner * columns, elements], 1)


def _convolution_terms(points: Floats) -> Floats:
    """Return a start, the operations, columns of windows, volumes, weights, and what oneDNN makes of the channels.

    It blocks them by 16, those that are not there included (oneDNN's documentation, Memory Format Propagation).
    """
    filters, channels, window, voxels, _, stride, products, is_padded, *aligned = points.T
    many_filters, many_channels = (np.ceil(each / _BLOCK) * _BLOCK for each in (filters, channels))
    terms = (
        np.ones(len(points)),
        filters * channels * window * voxels * products,
        channels * np.where(window > 1, window, 0.0) * voxels * (1 + products),
        (channels * voxels * stride + filters * voxels) * products,
        filters * channels * window,
        many_filters * many_channels * window * voxels * products,
        (many_channels * voxels * stride + many_filters * voxels) * products,
        filters * channels * window * voxels * products * (np.maximum(*aligned) > 1),
        filters * channels * window * voxels * (is_padded - 1),
        many_filters * many_channels * window * voxels * (is_padded - 1),
        _mapped(4 * channels * np.where(window > 1, window, 0.0) * voxels)
        + _mapped(4 * filters * voxels) * (products < _BOTH)
        + _mapped(4 * channels * voxels * stride) * (products == _BOTH),
    )
    return np.stack(terms, 1)


def numbers_of(kind: str) -> int:
    """Return on how many numbers the time of an operation of a kind depends; see `point_of`."""
    name = kind.partition(" ")[0]
    return 10 if name in (CONVOLUTION, CONVOLUTION_BACKWARD) else 3 if name in _PRODUCTS else 2


def kind_of(operation: Operation, device: str) -> str:
    """Return the kind of an operation: its name, and of convolutions which of torch's implementations runs."""
    if operation.name in (CONVOLUTION, CONVOLUTION_BACKWARD):
        return f"{operation.name} {_backend(operation, device)}"
    return operation.name


def point_of(operation: Operation) -> tuple[float, ...]:
    """Return the numbers on which the time of an operation depends, all positive."""
    if operation.name in (CONVOLUTION, CONVOLUTION_BACKWARD):
        is_forward = operation.name == CONVOLUTION
        weight = operation.shapes[1 if is_forward else 2]
        result = operation.results[0] if is_forward else operation.shapes[0]
        settings: Sequence[Any] = operation.settings if is_forward else operation.settings[-7:]
        products = 1 if is_forward else sum(settings[-1][:2])  # gradients of the input, of the weight, or of both
        voxels = result[0] * prod(result[2:])
        # oneDNN's weight gradients take several times as long where depth is padded (measured with 3.12).
        is_padded = 1 + (settings[1][0] > 0)
        sizes = *weight[:2], prod(weight[2:]), voxels, result[-1], prod(settings[0])
        numbers = *sizes, products, is_padded, *map(_alignment, weight[:2])
        return tuple(map(float, numbers))
    if operation.name in _PRODUCTS:
        (rows, inner), (_, columns) = operation.shapes[-2][-2:], operation.shapes[-1][-2:]
        return float(rows), float(inner), float(columns)
    return plain_point(operation)


def plain_point(operation: Operation) -> tuple[float, float]:
    """Return the bytes that are moved, and those of them that are made anew."""
    return float(max(operation.moved, 1)), float(max(_made(operation), 1))


def _alignment(channels: int) -> int:
    """Return 1 for a multiple of 16 channels, 2 for one of 8, and 4 for any others: each has kernels of its own."""
    return 1 if channels % 16 == 0 else 2 if channels % 8 == 0 else 4


def _made(operation: Operation) -> int:
    """Return the bytes of results that an operation makes anew, in float32."""
    if operation.name.endswith("_"):
        return 0
    return 4 * sum(map(prod, operation.results))


def _backend(operation: Operation, device: str) -> str:
    """Return the name of the implementation that torch chooses on the host; elsewhere all count as one."""
    if device != "cpu":
        return device
    is_forward = operation.name == CONVOLUTION
    x, weight = operation.shapes[:2] if is_forward else operation.shapes[1:3]
    settings: Sequence[Any] = operation.settings if is_forward else operation.settings[-7:]
    stride, padding, dilation, is_transposed, output_padding, groups = settings[:6]
    while prod(x) > _ASKED:
        place = max(range(2, len(x)), key=x.__getitem__)
        x = (*x[:place], max(1, x[place] // 2), *x[place + 1 :])
    choice = torch._C._select_conv_backend(  # noqa: SLF001 - torch has no public way to ask
        torch.empty(x),
        torch.empty(weight),
        None,
        list(stride),
        list(padding),
        list(dilation),
        is_transposed,
        list(output_padding),
        groups,
        None,
    )
    name = str(choice).rpartition(".")[2]
    return name if name.isidentifier() else f"backend {choice.value}"
