"""Windows: which part of a stored sample an augmented one is, moved over a periodic boundary or cropped."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voxload.augment.draws import Draws
from voxload.augment.orientation import Orientation
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Box, parse_axes
from voxload.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Placement:
    """A window of the stored sample, turned.

    The augmented sample ``A`` has at each voxel ``x`` what the stored one ``V`` has at ``T(x)``; ``T`` undoes the turn
    and adds the window's start. It holds outside the window too: there ``A`` goes on as ``V`` does, and as the
    boundary says where ``V`` ends.
    """

    window: Box
    """In stored indices; it may reach outside the sample."""
    orientation: Orientation = field(default_factory=Orientation)
    """How it is turned."""

    @classmethod
    def whole(cls, extents: Sequence[int]) -> Placement:
        """Return the sample as it is stored."""
        return cls(Box.whole(extents))

    @property
    def extents(self) -> tuple[int, int, int]:
        """Extents (D, H, W) of the augmented sample."""
        return self.orientation.shape(self.window.shape)

    def source(self, box: Box) -> Box:
        """Return the stored indices of a box given in those of the augmented sample; both may reach outside."""
        return self.orientation.stored_box(box, self.window.shape).shift(self.window.start)


@dataclass(frozen=True, slots=True)
class Translations:
    """Moves a sample over its periodic boundary by any number of voxels, each as likely; ``numpy.roll``."""

    axes: str = SPATIAL_AXES
    """Axes along which it is moved, such as ``"HW"``."""

    def __post_init__(self) -> None:
        parse_axes("Translations", self.axes)

    def origin(self, extents: Sequence[int], draws: Draws) -> tuple[int, ...]:
        """Return the stored voxel that becomes the first one."""
        moved = parse_axes("Translations", self.axes)
        return tuple(draws.below(extent) if axis in moved else 0 for axis, extent in enumerate(extents))


@dataclass(frozen=True, slots=True, init=False)
class ClassCentres:
    """Crops are centred on a class first, and then on a voxel of it.

    The class is drawn among those that the sample has, the voxel among up to `keep` of the class, each as likely. Those
    are a fair sample of the class: the voxels of least hash. A sample without any of the classes is cropped anywhere.
    """

    field: str
    """Name of the data set's field of integer labels, of one channel."""
    classes: tuple[int, ...] | None
    """Labels that are drawn from; None takes all that a sample has, the background's too."""
    weights: tuple[float, ...] | None
    """How likely each of `classes` is beside the others; None makes them as likely."""
    keep: int
    """Most voxels of a class that are remembered, 8 bytes each for the life of the data set."""
    budget: int
    """Most bytes of labels that are looked at together, given as a number or like ``"64MiB"``; one chunk at least."""

    def __init__(
        self,
        field: str,
        *,
        classes: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        keep: int = 4096,
        budget: int | str = "64MiB",
    ) -> None:
        if classes is not None and (not classes or len(set(classes)) < len(classes)):
            raise UsageError("classes of ClassCentres", found=str(classes), expected="labels, each once")
        if keep < 1:
            raise UsageError("keep of ClassCentres", found=str(keep), expected="1 or more")
        if weights is not None and (classes is None or len(weights) != len(classes) or not _are_weights(weights)):
            raise UsageError(
                "weights of ClassCentres",
                found=str(weights),
                expected="with classes given, one weight of 0 or more for each, and one above 0",
            )
        given = {
            "field": field,
            "classes": None if classes is None else tuple(classes),
            "weights": None if weights is None else tuple(weights),
            "keep": keep,
            "budget": parse_bytes(budget),
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class ClassVoxels:
    """What is remembered of a sample's labels; the same however its volume was cut to be looked at."""

    extents: tuple[int, ...]
    """Of the volume, (D, H, W)."""
    voxels: dict[int, npt.NDArray[np.uint64]]
    """Voxels of each label, ascending, as flat indices in C order: up to ``keep`` of least hash."""

    def draw(self, centres: ClassCentres, draws: Draws) -> tuple[int, ...] | None:
        """Return a voxel to crop around, or None where there is none of the classes."""
        labels = list(self.voxels) if centres.classes is None else [c for c in centres.classes if c in self.voxels]
        if centres.weights is not None and centres.classes is not None:
            given = dict(zip(centres.classes, centres.weights, strict=True))
            labels = [label for label in labels if given[label] > 0]
            weights = [given[label] for label in labels]
        else:
            weights = [1.0] * len(labels)
        if not labels:
            return None
        voxels = self.voxels[labels[draws.weighted(weights)]]
        flat = int(voxels[draws.below(len(voxels))])
        _, height, width = self.extents
        return flat // (height * width), flat // width % height, flat % width


def _are_weights(weights: Sequence[float]) -> bool:
    """Tell whether these are shares of something."""
    return all(0 <= weight < float("inf") for weight in weights) and any(weights)


@dataclass(frozen=True, slots=True, init=False)
class RandomCrop:
    """Cuts a box of one size out of each sample; the grid then parts the box as it would part a sample.

    Without `centres` every box inside the sample is as likely. A box lies inside the sample along each axis on which
    the sample is large enough.
    """

    size: tuple[int, int, int]
    """Extents (D, H, W) of the crop; one int stands for three."""
    centres: ClassCentres | None
    """Around which voxels crops are centred; moved inside where they would reach out."""
    pad: bool
    """What a sample smaller than the crop becomes: False refuses it, True puts it in the middle of what its boundary
    gives."""

    def __init__(self, size: int | Sequence[int], *, centres: ClassCentres | None = None, pad: bool = False) -> None:
        try:
            # index() takes numpy's integers too, and refuses 1.0, "1" and None.
            given = size if isinstance(size, Sequence) else (size,) * len(SPATIAL_AXES)
            extents = tuple(map(operator.index, given))
        except TypeError:
            extents = ()
        if len(extents) != len(SPATIAL_AXES) or min(extents) < 1:
            raise UsageError("size of RandomCrop", found=repr(size), expected="one extent, or three for (d, h, w)")
        for name, value in (("size", extents), ("centres", centres), ("pad", pad)):
            object.__setattr__(self, name, value)

    def start(self, extents: Sequence[int], draws: Draws, centre: Sequence[int] | None) -> tuple[int, ...]:
        """Return the first voxel of a crop of a sample of `extents`, around `centre` or anywhere.

        A crop of even extent has one voxel more before its centre than behind it.

        Raises UsageError when the sample is too small.
        """
        free = [extent - size for extent, size in zip(extents, self.size, strict=True)]
        if min(free) < 0 and not self.pad:
            raise UsageError(
                "RandomCrop",
                found=f"extents {tuple(extents)}",
                expected=f"{self.size} or more",
                remedy="crop less, leave the sample out, or say pad=True",
            )
        if centre is None:
            return tuple(draws.below(room + 1) if room >= 0 else -(-room // 2) for room in free)
        wanted = (voxel - size // 2 for voxel, size in zip(centre, self.size, strict=True))
        return tuple(
            min(max(begin, 0), room) if room >= 0 else -(-room // 2) for begin, room in zip(wanted, free, strict=True)
        )
