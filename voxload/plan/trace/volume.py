"""VolumeTrace: a step on whole volumes, from which steps on blocks follow by arithmetic; pure.

To trace a step takes about a second, and there are hundreds of grids. Every tensor of a block has the extents of the
volume's divided by ranks, so one trace has them all: volumes are told by their batch, of a size that nothing else has.
What the engine does beside that is put in: halos of sliding windows, blocks that meet where an axis has fewer voxels
than ranks need, and the volume that is made whole in front of dense layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from voxload.engine.observe import Messages, Total
from voxload.engine.shard import MIN_WIDTH
from voxload.plan.trace.operation import Allocation, Gradient, Operation, Phase, StepTrace, itemsize
from voxload.plan.trace.stencils import Stencil, stencil_of

BATCH = 1009
"""Samples of the batch that is traced: a prime, so that a multiple of it is a batch."""

Shape = tuple[int, ...]
_DENSE = frozenset({"aten.addmm", "aten.mm", "aten.linear"})


@dataclass(frozen=True)
class VolumeTrace:
    """A step of a rank that has whole volumes."""

    step: StepTrace
    """With `BATCH` samples."""
    shape: tuple[int, ...]
    """Extents (D, H, W) of a volume."""
    channels: int

    def on_blocks(self, spatial: Sequence[int], *, batch: int = 1, min_width: int = MIN_WIDTH) -> StepTrace:
        """Return the step of a rank in the middle of a grid: it has neighbours on all sides, and takes part in all.

        Parameters
        ----------
        spatial
            Ranks along (D, H, W).
        batch
            Samples of a sample group.
        min_width
            As `voxload.engine.shard` takes it.
        """
        return _Divider(self.step, self._recipe, _Cut(tuple(spatial), batch, min_width)).run()

    @cached_property
    def _recipe(self) -> tuple[_Item, ...]:
        """What becomes of each operation."""
        return tuple(map(_Item.of, self.step.operations))


@dataclass(frozen=True, slots=True)
class _Item:
    """An operation, and what its tensors tell of what becomes of it on a block."""

    operation: Operation
    is_alike: bool
    """Whether it is the same on a block."""
    stencil: Stencil | None
    """How it slides over volumes, where it does."""
    is_dense: bool
    """Whether a volume is to be whole in front of it."""
    volume: Shape
    """The last volume that it gives; nothing where it gives none."""

    @classmethod
    def of(cls, operation: Operation) -> _Item:
        tensors = (*operation.shapes, *operation.results)
        is_alike = operation.phase is Phase.UPDATE or all(
            each % BATCH or not each for shape in tensors for each in shape
        )
        is_dense = operation.phase is Phase.FORWARD and operation.name in _DENSE
        volume = next((each for each in reversed(operation.results) if is_volume(each)), ())
        return cls(operation, is_alike, None if is_alike else _sliding(operation), is_dense, volume)


class _Cut:
    """How shapes become those of a block."""

    def __init__(self, spatial: Shape, batch: int, min_width: int) -> None:
        self.spatial, self.batch, self._min_width = spatial, batch, min_width
        self._known: dict[Shape, Shape] = {}

    def parts(self, extents: Sequence[int]) -> Shape:
        """Return over how many ranks a volume of these extents lies, along each axis."""
        return tuple(self._along(count, extent) for count, extent in zip(self.spatial, extents, strict=True))

    def local(self, shape: Shape) -> Shape:
        """Return the shape of a block's tensor."""
        found = self._known.get(shape)
        if found is None:
            dims = [self.batch * (each // BATCH) if each and each % BATCH == 0 else each for each in shape]
            if is_volume(shape):
                pairs = zip(shape[2:], self.parts(shape[2:]), strict=True)
                dims[2:] = [-(-extent // parts) for extent, parts in pairs]
            found = self._known[shape] = tuple(dims)
        return found

    def _along(self, count: int, extent: int) -> int:
        while count > 1 and extent < self._min_width * count:
            count = -(-count // 2)
        return count


def is_volume(shape: Shape) -> bool:
    """Tell whether a tensor of the traced step is a batch of volumes: (B, C, D, H, W)."""
    return len(shape) == 5 and shape[0] % BATCH == 0 and shape[0] > 0


def _sliding(operation: Operation) -> Stencil | None:
    """Return how an operation slides over volumes; None where it does not."""
    if "conv" not in operation.name and "pool" not in operation.name:
        return None
    stencil = stencil_of(operation)
    return stencil if stencil is not None and is_volume(stencil.source) else None


class _Divider:
    """Writes the step of a block down, operation by operation."""

    def __init__(self, step: StepTrace, recipe: tuple[_Item, ...], cut: _Cut) -> None:
        self._step, self._recipe, self._cut = step, recipe, cut
        self._resizes = dict[tuple[tuple[Shape, ...], tuple[Shape, ...]], _Resize]()
        self._operations: list[Operation] = []
        self._copies = dict[tuple[str, Shape], _Copy]()  # by layer and shape of the volume
        self._last: Shape = ()

    def run(self) -> StepTrace:
        places, ends = list[int](), [0]  # of each operation itself, and behind what comes with it
        for each in self._recipe:
            places.append(self._add(each))
            ends.append(len(self._operations))
        gradients = tuple(Gradient(each.name, each.nbytes, ends[each.ready]) for each in self._step.gradients)
        places.append(len(self._operations))
        allocations = tuple(sorted(self._allocations(places), key=lambda each: each.made))
        return StepTrace(tuple(self._operations), allocations, gradients, self._step.weights, self._step.state)

    def _add(self, item: _Item) -> int:
        """Add an operation and what is exchanged for it; returns its place."""
        if item.stencil is not None:
            return self._slide(item.operation, item.stencil)
        if item.is_dense:
            self._make_whole(item.operation)
        self._operations.append(item.operation if item.is_alike else self._divided(item.operation))
        self._last = item.volume or self._last
        return len(self._operations) - 1

    def _divided(self, operation: Operation) -> Operation:
        key = operation.shapes, operation.results
        resize = self._resizes.get(key)
        if resize is None:
            shapes, results = (tuple(map(self._cut.local, each)) for each in key)
            resize = self._resizes[key] = _Resize.of(operation, shapes, results)
        return operation if (resize.shapes, resize.results) == key else resize.apply(operation)

    def _slide(self, operation: Operation, stencil: Stencil) -> int:
        """Add an operation whose windows reach into the neighbours, and what is exchanged for that."""
        whole, results = stencil.source, stencil.result
        parts, after = self._cut.parts(whole[2:]), self._cut.parts(results[2:])
        block = self._cut.local(whole)
        messages = list[tuple[Messages, Shape, Shape]]()
        for axis, (before, to) in enumerate(zip(parts, after, strict=True)):
            reach = stencil.reach[axis]
            fetched = tuple(_fetched(whole[2 + axis], before, to, reach))
            if not any(fetched):
                continue
            wide = list(block)
            inner = min(whole[2 + axis], -(-whole[2 + axis] // to) + (sum(reach) if to > 1 else 0))
            wide[2 + axis] = inner
            position = prod(block) // block[2 + axis] * itemsize(operation.dtype)
            sizes = tuple(voxels * position for voxels in fetched if voxels)
            messages.append((Messages(axis, sizes, sizes), block, tuple(wide)))
            block = tuple(wide)
        # By place: what a convolution takes may be of the shape that it gives.
        is_forward = operation.phase is Phase.FORWARD
        shapes = [self._cut.local(each) for each in operation.shapes]
        given = [self._cut.local(each) for each in operation.results]
        shapes[0 if is_forward else 1] = block
        if not is_forward and operation.results[0] == whole:
            given[0] = block
        own = _Resize.of(operation, tuple(shapes), tuple(given)).apply(operation)
        if is_forward:
            made = len(self._operations)
            self._operations += [_message("voxload.gather", operation, *each) for each in messages]
            self._operations.append(own)
            if messages:
                nbytes, last = prod(block) * itemsize(operation.dtype), len(self._operations)
                self._copies[operation.path, whole] = _Copy(made + len(messages) - 1, last, nbytes, block)
            self._last = results
            return len(self._operations) - 1
        number = len(self._operations)
        self._operations.append(own)
        if stencil.gives_source:
            back = ((each, after_, before_) for each, before_, after_ in reversed(messages))
            self._operations += [_message("voxload.scatter_add", operation, *each) for each in back]
        copy = self._copies.get((operation.path, whole))
        if copy is not None:
            copy.freed = number
        return number

    def _make_whole(self, operation: Operation) -> None:
        """Add what brings a volume to every rank in front of a dense layer that takes all of it."""
        features = prod(self._last[1:]) if self._last else 0
        if not features or (BATCH, features) not in operation.shapes:
            return
        block, whole = list(self._cut.local(self._last)), self._last[2:]
        self._last = ()
        for axis, ranks in enumerate(self._cut.spatial):
            if ranks == 1:
                continue
            before = tuple(block)
            block[2 + axis] = whole[axis]
            own = prod(before) * itemsize(operation.dtype)
            missing = (prod(block) - prod(before)) * itemsize(operation.dtype)
            # The rank that has most sends it to all others of its line.
            sizes = (max(missing, own * (ranks - 1)),)
            self._operations.append(_message("voxload.gather", operation, Messages(axis, sizes, sizes), before, block))

    def _allocations(self, places: list[int]) -> Iterator[Allocation]:
        # What only a layer's backward pass had needs no longer be kept once there is a copy with halos.
        ends = {(each.freed, whole): each.made + 1 for (_, whole), each in self._copies.items()}
        sizes = dict[Shape, tuple[Shape, int, int]]()
        for each in self._step.allocations:
            if each.shape not in sizes:
                local = self._cut.local(each.shape)
                sizes[each.shape] = local, prod(local), max(prod(each.shape), 1)
            shape, now, before = sizes[each.shape]
            nbytes = each.nbytes * now // before
            made, freed = places[each.made], places[each.freed]
            end = ends.get((freed, each.shape), freed)
            used = places[each.used]
            yield Allocation(nbytes, made, end if end > made else freed, each.path, each.name, shape, used)
        for (path, _), copy in self._copies.items():  # taken by the operation behind it
            yield Allocation(copy.nbytes, copy.made, copy.freed, path, "voxload.gather", copy.shape, copy.made + 1)


@dataclass(slots=True)
class _Copy:
    """A block with its halos."""

    made: int
    freed: int
    nbytes: int
    shape: Shape


def _fetched(extent: int, before: int, to: int, reach: tuple[int, int]) -> Iterator[int]:
    """Yield how many voxels along an axis come from each side, or from wherever they lie."""
    if before == to:
        if to > 1:
            sides = [each for each in reach if each]
            yield from sides if to > 2 else sides[:1]
    elif to < before:
        yield -(-extent // to) - -(-extent // before)
    else:
        yield -(-extent // to)


def _message(
    name: str, operation: Operation, messages: Messages, before: Sequence[int], to: Sequence[int]
) -> Operation:
    item = itemsize(operation.dtype)
    moved = (prod(before) + prod(to)) * item
    shapes, results = (tuple(before),), (tuple(to),)
    return Operation(name, operation.phase, operation.path, shapes, results, operation.dtype, (), 0, moved, messages)


@dataclass(frozen=True, slots=True)
class _Resize:
    """How an operation becomes one on tensors of other shapes."""

    shapes: tuple[Shape, ...]
    results: tuple[Shape, ...]
    before: int
    """Elements of all tensors."""
    after: int

    @classmethod
    def of(cls, operation: Operation, shapes: tuple[Shape, ...], results: tuple[Shape, ...]) -> _Resize:
        before = sum(map(prod, (*operation.shapes, *operation.results)))
        return cls(shapes, results, max(before, 1), sum(map(prod, (*shapes, *results))))

    def apply(self, one: Operation) -> Operation:
        moved = one.moved * self.after // self.before
        flops = _flops(one, self.shapes, self.results) if one.flops else 0
        exchanged = one.exchanged
        if isinstance(exchanged, Total):
            nbytes = exchanged.nbytes * prod(self.shapes[0]) // max(prod(one.shapes[0]), 1)
            exchanged = replace(exchanged, nbytes=nbytes)
        # Not by dataclasses.replace, which takes longer than all the rest.
        about = one.name, one.phase, one.path, self.shapes, self.results, one.dtype, one.settings
        return Operation(*about, flops, moved, exchanged)


def _flops(operation: Operation, shapes: tuple[Shape, ...], results: tuple[Shape, ...]) -> int:
    """Return the work of an operation: that of a convolution grows with its outputs, of matrices with the batch."""
    stencil = stencil_of(operation)
    if stencil is None:
        pairs = zip((*operation.shapes, *operation.results), (*shapes, *results), strict=True)
        grown = [(prod(after), prod(before)) for before, after in pairs if before and before != after]
        after, before = min(grown, key=lambda pair: pair[0] / pair[1], default=(1, 1))
        return operation.flops * after // before
    is_forward = operation.phase is Phase.FORWARD
    if stencil.is_transposed:  # its windows slide over what it takes
        return operation.flops * prod(shapes[0 if is_forward else 1]) // prod(stencil.source)
    return operation.flops * prod(results[0] if is_forward else shapes[0]) // prod(stencil.result)
