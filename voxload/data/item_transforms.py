"""Transforms of single items: what a data set does to a sample before anybody sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voxload.errors import UsageError

ItemTransform = Callable[[Any], Any]
"""Takes an item, or the tensor of one field, and returns what takes its place."""


@dataclass(frozen=True, slots=True)
class PerField:
    """Changes single fields of an item and leaves its form as it is."""

    changes: tuple[ItemTransform | None, ...]
    """What is done to the tensor ``(C, d, h, w)`` of each field."""

    def __call__(self, item: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the item with its fields changed; targets stay."""
        # Asked for None alone: the length of MONAI's Compose, which is its truth, seeds its transforms anew.
        changed = [part if change is None else change(part) for change, part in zip(self.changes, item, strict=False)]
        return (*changed, *item[len(changed) :])


class AsDict:
    """Lets a transform of dictionaries, such as MONAI's, work on items: they become dictionaries, and stay so.

    Parameters
    ----------
    names
        What the parts of an item are called: the fields in order, then the targets where there are any.
    transform
        Takes a dictionary by these names, and returns what the item becomes.

    Examples
    --------
    >>> AsDict(["x", "labels"], lambda item: {**item, "x": -item["x"]})((1, 2))
    {'x': -1, 'labels': 2}
    """

    def __init__(self, names: Sequence[str], transform: ItemTransform) -> None:
        self.names = tuple(names)
        self.transform = transform

    def __call__(self, item: tuple[Any, ...]) -> Any:
        """Return what the transform makes of the item; raises UsageError when it has another number of parts."""
        if len(item) != len(self.names):
            raise UsageError("AsDict", found=f"an item of {len(item)} parts", expected=f"{list(self.names)}")
        return self.transform(dict(zip(self.names, item, strict=True)))

    def __repr__(self) -> str:
        return f"AsDict({list(self.names)}, {self.transform!r})"


def item_transform(
    given: ItemTransform | Mapping[str, ItemTransform] | None, fields: Sequence[str], *, parts: Sequence[str]
) -> ItemTransform | None:
    """Return what is done to an item: a callable as it is, a mapping from field names as one of its parts.

    `parts` names the field that each volume of an item is of.

    Raises UsageError at names of no field, and at what cannot be called.
    """
    if given is None or not isinstance(given, Mapping):
        if given is not None and not _is_callable(given):
            raise UsageError(
                "transform", found=repr(given), expected="a callable, or a mapping from fields to callables"
            )
        return given
    unknown = set(given) - set(fields)
    if unknown:
        raise UsageError("transform", found=f"field {min(unknown)!r}", expected=f"one of {list(fields)}")
    for field, change in given.items():
        if not _is_callable(change):
            raise UsageError(f"transform[{field!r}]", found=repr(change), expected="a callable")
    return PerField(tuple(given.get(field) for field in parts))


def _is_callable(given: Any) -> bool:
    """Tell whether what a caller gave can be called."""
    return callable(given)
