"""ClassCentres: voxels of each class of a segmentation, found once and remembered, around which crops are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.augment.draws import Draws
from voxload.errors import UsageError
from voxload.units import parse_bytes


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
