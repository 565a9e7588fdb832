"""A convolution that begins with its own block while the halos travel, and joins them afterwards.

A convolution is linear in its input. So the block alone, with zeros around it, gives all outputs but those at the faces
right; the faces' outputs are then completed (`Join.ADD`: what the halo alone contributes is added) or computed again
from the halo and the rows beside it (`Join.PATCH`: each output is rounded as in one process). Backward, the gradient of
the halo is computed first and travels while that of the block is computed. Neither way copies the block to pad it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.arithmetic.axis_plan import FIRST_AXIS
from voxload.engine.arithmetic.layer_plan import Tile
from voxload.engine.arithmetic.windows import Window
from voxload.engine.exchange.protocol import Exchange
from voxload.engine.run.autograd_functions import applied
from voxload.engine.run.collectives import gather, scatter_add
from voxload.engine.run.halo import Fetch, Margin, Region, Return, Slabs
from voxload.engine.run.join import Chooser, Join
from voxload.engine.run.tensors import dense, zeros_like_block


@dataclass(frozen=True, slots=True)
class Face:
    """One side of the halo along one axis, and the outputs that read it."""

    level: int
    """Number of the axis among those that are fetched."""
    is_high: bool
    """Whether it lies behind the block."""
    first: int
    """First output along the axis that reads it, in this rank's block of the output."""
    count: int
    """Number of such outputs."""
    start: int
    """First row of the block that they read."""
    rows: int
    """Number of rows of the block that they read."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a convolution that does not pad its block computes, for one rank's tile."""

    windows: tuple[Window, ...]
    """Per axis (d, h, w)."""
    padding: tuple[int, ...]
    """Zeros on either side of the block, per axis."""
    margins: tuple[Margin, ...]
    """Halos, in the order in which they are fetched."""
    faces: tuple[Face, ...]
    """In the order of their axes."""
    extents: tuple[int, ...]
    """Extents of this rank's block of the output."""
    groups: int
    """Groups of the convolution."""

    def of_face(self, face: Face) -> tuple[int, ...]:
        """Return the padding of the convolution that completes a face: earlier halos are there, later ones are not."""
        padding = list(self.padding)
        for margin in self.margins[: face.level + 1]:
            padding[margin.part.axis] = 0
        return tuple(padding)


def layout_of(tile: Tile, windows: tuple[Window, ...], own: tuple[int, ...], groups: int) -> Layout | None:
    """Return how a tile is computed without padding its block; None where only padding does it.

    That is so for blocks that are empty or so thin that an output reads both halos, for crops, and for windows that
    reach further behind the block than before it.

    Parameters
    ----------
    tile
        This rank's part of the plan.
    windows
        The convolution, per axis.
    own
        Padding that the layer itself does, per axis.
    groups
        Groups of the convolution.
    """
    margins, faces, padding = [], [], list(own)
    extents = [stop - start for start, stop in zip(tile.origin, tile.end, strict=True)]
    if not all(tile.extents) or not all(extents):
        return None
    for level, part in enumerate(tile.parts):
        axis = part.axis
        low = tile.origin[axis] - tile.start[axis]
        margin = Margin(part, low, part.needed - low - part.owned)
        found = _faces(level, margin, windows[axis], tile.extents[axis])
        if found is None:
            return None
        margins.append(margin)
        faces += found
        padding[axis] = low
    for axis, window in enumerate(windows):
        if (
            Window(window.kernel, window.stride, window.dilation, padding[axis], padding[axis]).outputs(extents[axis])
            < tile.extents[axis]
        ):
            return None
    return Layout(windows, tuple(padding), tuple(margins), tuple(faces), tile.extents, groups) if margins else None


def _faces(level: int, margin: Margin, window: Window, outputs: int) -> list[Face] | None:
    """Return the faces of one axis, or None where an output would read both halos, or a crop."""
    low, high, owned = margin.low, margin.high, margin.part.owned
    if low < 0 or high < 0:
        return None
    faces = []
    served = {margin.place(run)[0] for _, runs in margin.part.incoming for run in runs}
    served |= {margin.place(run)[0] for run in margin.here}
    # At the border of the volume the zeros around the block are what stands there.
    if low and False in served:
        count = min(outputs, -(-low // window.stride))
        rows = window.stride * (count - 1) + window.span - low
        if not 0 <= rows <= owned:
            return None
        faces.append(Face(level, is_high=False, first=0, count=count, start=0, rows=rows))
    first = max(0, -(-(low + owned - window.span + 1) // window.stride))
    if high and first < outputs and True in served:
        start = window.stride * first - low
        if not 0 <= start <= owned:
            return None
        faces.append(Face(level, is_high=True, first=first, count=outputs - first, start=start, rows=owned - start))
    return faces


@dataclass(frozen=True, slots=True, eq=False)
class How:
    """How one call of a convolution is carried out."""

    layout: Layout
    """What is computed."""
    join: Join
    """How halos are joined."""
    key: Hashable
    """Tells the convolution from others."""
    chooser: Chooser
    """Chose `join`, and may want to know how long it took."""
    exchange: Exchange
    """Carries the messages."""


def joined(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, layout: Layout, chooser: Chooser, exchange: Exchange
) -> Tensor:
    """Return this rank's block of a convolution; all ranks of the group must call it together.

    The messages are those of `gather`, in the same order, whatever each rank's `chooser` says. Differentiable any
    number of times.
    """
    key = layout, x.shape, x.dtype, x.device.type
    how = How(layout, chooser.choose(key), key, chooser, exchange)
    if how.join is Join.PAD and not chooser.is_measuring(key):
        return _convolved(_padded(x, how), (weight, bias), layout, _unpadded(layout))
    result: Tensor = applied(_Joined, x, weight, bias, how)
    return result


class _Joined(torch.autograd.Function):
    """The autograd node of `joined`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
        with how.chooser.timed(how.key, how.join, x.device):
            if how.join is Join.PAD:
                halos = [_padded(x, how)]
                y = _convolved(halos[0], (weight, bias), how.layout, _unpadded(how.layout))
            else:
                y, halos = _begun(x, (weight, bias), how)
        ctx.save_for_backward(x, weight, bias, *halos)
        ctx.how = how
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, weight, bias, *halos = ctx.saved_tensors
        how: How = ctx.how
        if torch.is_grad_enabled():
            return (*_twice(grads[0], (x, weight, bias), how), None)
        with how.chooser.timed(how.key, how.join, x.device):
            work = _Backward(how, grads[0], (weight, bias), ctx.needs_input_grad[:3])
            found = work.of_padded(halos[0]) if how.join is Join.PAD else work.of_block(x, halos)
        return (*found, None)


def _begun(x: Tensor, weights: tuple[Tensor, Tensor | None], how: How) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs of a block, computed while its halos travel, and the halos."""
    layout, region = how.layout, Region(x)
    fetch = Fetch.start(region, layout.margins[0], how.exchange)
    y = _convolved(x, weights, layout, layout.padding)
    for level in range(len(layout.margins)):
        fetch.finish()
        if level + 1 < len(layout.margins):
            fetch = Fetch.start(region, layout.margins[level + 1], how.exchange)
        for face in layout.faces:
            if face.level == level:
                _complete(y, region, face, weights, how)
    return y, [side for slabs in region.slabs for side in (slabs.low, slabs.high)]


def _padded(x: Tensor, how: How) -> Tensor:
    """Return the block with its halos around it."""
    for margin in how.layout.margins:
        x = gather(x, margin.part, fill=0.0, exchange=how.exchange)
    return x


def _unpadded(layout: Layout) -> tuple[int, ...]:
    """Return the padding of a convolution of a block that has its halos around it."""
    padding = list(layout.padding)
    for margin in layout.margins:
        padding[margin.part.axis] = 0
    return tuple(padding)


class _Backward:
    """One backward pass: gradients of the faces, then of the block while those travel."""

    def __init__(self, how: How, grad: Tensor, weights: tuple[Tensor, Tensor | None], needs: tuple[bool, ...]) -> None:
        self._layout, self._join, self._exchange = how.layout, how.join, how.exchange
        self._weight, self._bias = weights
        self._needs_x, self._needs_weight, self._needs_bias = needs
        # Outputs at the faces that were computed again owe nothing to the block's own convolution.
        self._grad = grad.clone() if self._join is Join.PATCH else dense(grad)
        self._into_bias = grad.sum((0, 2, 3, 4)) if self._needs_bias and self._bias is not None else None
        self._into_weight: Tensor | None = None
        self._rows: list[tuple[Tensor, Face]] = []

    def of_padded(self, padded: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of input, weight and bias where a padded copy was convolved."""
        into = self._backward(self._grad, padded, _unpadded(self._layout))
        if into is not None:
            for margin in reversed(self._layout.margins):
                into = scatter_add(into, margin.part, exchange=self._exchange)
        return into, self._into_weight, self._into_bias

    def of_block(self, x: Tensor, halos: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of input, weight and bias where block and halos were convolved apart."""
        margins = self._layout.margins
        pairs = list(zip(halos[::2], halos[1::2], strict=True))
        region, into = Region(x), Region(x)  # the block keeps its gradient's place: only its shape is asked for
        region.slabs = [Slabs(margin, *pair) for margin, pair in zip(margins, pairs, strict=True)]
        into.slabs = [Slabs(margin, *map(torch.zeros_like, pair)) for margin, pair in zip(margins, pairs, strict=True)]
        last = len(margins) - 1
        self._faces_of(last, region, into)
        under_way = Return.start(into, last, self._exchange) if self._needs_x else None
        for level in reversed(range(last)):
            self._faces_of(level, region, into)
        into_x = self._backward(self._grad, x, self._layout.padding)
        if into_x is None or under_way is None:
            return None, self._into_weight, self._into_bias
        into.block = into_x
        for planes, face in self._rows:
            into.add(planes, margins[face.level].dim, face.start, level=face.level)
        under_way.finish()
        for level in reversed(range(last)):
            Return.start(into, level, self._exchange).finish()
        return into_x, self._into_weight, self._into_bias

    def _faces_of(self, level: int, region: Region, into_region: Region) -> None:
        """Compute the gradients of the halo along one axis, and of the rows of the block that were read with it."""
        for face in self._layout.faces:
            if face.level != level:
                continue
            margin = self._layout.margins[level]
            outputs = self._grad.narrow(margin.dim, face.first, face.count)
            grad = outputs.clone() if self._join is Join.PATCH else outputs
            if self._join is Join.PATCH:
                outputs.zero_()
            edge = _edge(region, face, self._join)
            into = self._backward(grad, edge, self._layout.of_face(face))
            if into is None:
                continue
            width = margin.high if face.is_high else margin.low
            sizes = [face.rows, width] if face.is_high else [width, face.rows]
            before, behind = torch.split(into, sizes, margin.dim)
            slabs = into_region.slabs[level]
            (slabs.high if face.is_high else slabs.low).add_(behind if face.is_high else before)
            if self._join is Join.PATCH:
                self._rows.append((before if face.is_high else behind, face))

    def _backward(self, grad: Tensor, x: Tensor, padding: tuple[int, ...]) -> Tensor | None:
        """Add to the gradient of the weight what one convolution gives, and return the gradient of its input."""
        windows = self._layout.windows
        pads: list[int] = []
        for axis in reversed(range(len(windows))):
            made = _outputs(windows[axis], x.shape[FIRST_AXIS + axis], padding[axis])
            pads += [0, made - grad.shape[FIRST_AXIS + axis]]
        into_x, into_weight, _ = torch.ops.aten.convolution_backward(
            functional.pad(grad, pads) if any(pads) else grad,
            x,
            self._weight,
            None,
            [window.stride for window in windows],
            list(padding),
            [window.dilation for window in windows],
            False,  # noqa: FBT003 - the operator has no keywords
            [0, 0, 0],
            self._layout.groups,
            [self._needs_x, self._needs_weight, False],
        )
        if self._needs_weight:
            self._into_weight = into_weight if self._into_weight is None else self._into_weight.add_(into_weight)
        return into_x if self._needs_x else None


def _complete(
    y: Tensor,
    region: Region,
    face: Face,
    weights: tuple[Tensor, Tensor | None],
    how: How,
) -> None:
    """Complete the outputs at one face, in place."""
    layout, join = how.layout, how.join
    dim = layout.margins[face.level].dim
    weight, bias = weights
    given = weight, bias if join is Join.PATCH else None
    part = _convolved(_edge(region, face, join), given, layout, layout.of_face(face))
    outputs = y.narrow(dim, face.first, face.count)
    if join is Join.PATCH:
        outputs.copy_(part.narrow(dim, 0, face.count))
    else:
        outputs.add_(part.narrow(dim, 0, face.count))


def _edge(region: Region, face: Face, join: Join) -> Tensor:
    """Return the halo at a face and the rows of the block that are read with it; zeros where they do not count."""
    slabs = region.slabs[face.level]
    dim, halo = slabs.margin.dim, slabs.high if face.is_high else slabs.low
    if join is Join.PATCH:
        rows = region.take(dim, face.start, face.rows, level=face.level)
    else:
        rows = zeros_like_block(region.block, region.extents(dim, face.rows, level=face.level))
    return torch.cat([rows, halo] if face.is_high else [halo, rows], dim)


def _convolved(x: Tensor, weights: tuple[Tensor, Tensor | None], layout: Layout, padding: tuple[int, ...]) -> Tensor:
    """Return the outputs of a convolution that this rank owns; along a face's axis all that there are."""
    weight, bias = weights
    windows = layout.windows
    y = functional.conv3d(
        x,
        weight,
        bias,
        tuple(window.stride for window in windows),
        padding,
        tuple(window.dilation for window in windows),
        layout.groups,
    )
    for axis, extent in enumerate(layout.extents):
        if y.shape[FIRST_AXIS + axis] > extent:
            y = y.narrow(FIRST_AXIS + axis, 0, extent)
    return dense(y) if not y.is_contiguous() and y._base is not None else y  # noqa: SLF001 - whether it is a view


def _outputs(window: Window, extent: int, padding: int) -> int:
    return Window(window.kernel, window.stride, window.dilation, padding, padding).outputs(extent)


def _twice(grad: Tensor, inputs: tuple[Tensor, Tensor, Tensor | None], how: How) -> tuple[Tensor | None, ...]:
    """Return the gradients by operations that can be differentiated again: those of the padded form."""
    wanted = [tensor for tensor in inputs if tensor is not None and tensor.requires_grad]
    with torch.enable_grad():
        x, weight, bias = inputs
        y = _convolved(_padded(x, how), (weight, bias), how.layout, _unpadded(how.layout))
        found = iter(torch.autograd.grad(y, wanted, grad, create_graph=True))
    return tuple(next(found) if tensor is not None and tensor.requires_grad else None for tensor in inputs)
