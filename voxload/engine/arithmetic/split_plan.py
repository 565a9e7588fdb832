"""SplitPlan: what each layer of a network uses the axes of the grid for: its volume, its filters or its channels.

After Dryden et al., Channel and Filter Parallelism for Large-Scale CNN Training, SC'19: a layer's weights may be cut in
the place of its volume. It pays where volumes are small and channels many.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from voxload.errors import UsageError

_AXES = 3
_ROOT = ""


class Use(enum.Enum):
    """What a layer with weights uses one axis of the grid for."""

    SPACE = "space"
    """Its volume is cut along its own spatial axis, and each rank computes the outputs of its block."""
    FILTER = "filter"
    """Every rank has all that the layer reads, and computes the outputs of its own filters."""
    CHANNEL = "channel"
    """Every rank has some channels of what the layer reads; what they give is added up over the ranks."""
    WHOLE = "whole"
    """All ranks do the same."""


Uses = tuple[Use, Use, Use]
"""Of the axes d, h and w of the grid."""
IN_SPACE: Uses = (Use.SPACE,) * 3


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Uses of the grid's axes, by the paths of modules; immutable, and equal where it says the same.

    What is said of a module holds for all in it of which nothing is said. Where nothing is said, volumes are cut in
    space. Layers without weights keep the cut of what they take.

    Examples
    --------
    >>> plan = SplitPlan.of({"deep": "filter", "deep.last": "space, channel, channel"})
    >>> plan.uses("deep.first")[0].value, plan.uses("deep.last")[0].value, plan.uses("head")[0].value
    ('filter', 'space', 'space')
    """

    layers: tuple[tuple[str, Uses], ...]
    """Paths as ``named_modules`` has them, the network's own is empty; in the order of the paths."""

    @classmethod
    def of(cls, layers: Mapping[str, str | Sequence[str | Use]]) -> Self:
        """Return the plan that gives each path a use for all axes, or one for each of d, h and w.

        Raises UsageError for anything else than space, filter, channel and whole.
        """
        return cls(tuple(sorted((path, _uses(path, said)) for path, said in layers.items())))

    @property
    def is_in_space(self) -> bool:
        """Whether all volumes are cut in space, as without a plan."""
        return all(uses == IN_SPACE for _, uses in self.layers)

    def uses(self, path: str) -> Uses:
        """Return what the layer of a path uses the axes for."""
        return self.found(path)[1]

    def found(self, path: str) -> tuple[str | None, Uses]:
        """Return the path in the plan by which a layer has its uses, None where none is, and the uses."""
        known = dict(self.layers)
        while True:
            if path in known:
                return path, known[path]
            if path == _ROOT:
                return None, IN_SPACE
            path = path.rpartition(".")[0]


def _uses(path: str, said: str | Sequence[str | Use]) -> Uses:
    words = [each.strip() for each in said.split(",")] if isinstance(said, str) else list(said)
    words = words * _AXES if len(words) == 1 else words
    try:
        first, second, third = map(Use, words)
    except ValueError as error:
        raise UsageError(
            f"plan of layer {path!r}",
            found=repr(said),
            expected="one of space, filter, channel and whole, for all axes of the grid or for each of d, h and w",
        ) from error
    return first, second, third
