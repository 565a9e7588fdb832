"""Names: which of a file's volumes are wanted, and what they are called where they are converted to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path

from voxload.convert.sources.hints import Hints
from voxload.convert.sources.protocol import RawCube
from voxload.errors import DataError, NotFoundError, UsageError
from voxload.text import is_text, listed

_LISTED = 10
"""Names that a message lists at most."""


def volume_names(names: Sequence[str]) -> dict[str, str]:
    """Return what each dataset is called as a volume: its last segment, or all of them where two have the same.

    >>> volume_names(["native_fields/density", "derived_fields/flux"])
    {'native_fields/density': 'density', 'derived_fields/flux': 'flux'}
    """
    last = {name: name.rsplit("/", 1)[-1] for name in names}
    count = Counter(last.values())
    return {name: short if count[short] == 1 else name.replace("/", "_") for name, short in last.items()}


def candidate_datasets(names: Sequence[str], hints: Hints) -> Sequence[str]:
    """Return the datasets that may be wanted, and those by which these get their names; all where that is not known.

    Of a file with any number of datasets only they need be looked at.
    """
    wanted = {name.strip("/") for name in hints.datasets}
    last = {name: name.rsplit("/", 1)[-1] for name in names}
    named = [name for name in names if {name, last[name], name.replace("/", "_")} & wanted]
    alike = {last[name] for name in named}
    return [name for name in names if last[name] in alike] if named else names


def chosen_datasets(subject: str, names: Sequence[str], hints: Hints) -> dict[str, str]:
    """Return the wanted ones of a file's datasets, each with the name of its volume, in the file's order.

    Raises
    ------
    NotFoundError
        When the caller names one that is not there; lists those that are.
    DataError
        When two datasets would get the same name, or one has a name that is no text.
    """
    volumes = volume_names(names)
    twice = [name for name, count in Counter(volumes.values()).items() if count > 1]
    if twice:
        raise DataError(subject, found=f"two datasets for the volume {twice[0]!r}", expected="one", remedy="rename one")
    wanted = {name.strip("/") for name in hints.datasets}
    absent = wanted - set(volumes) - set(volumes.values())
    if absent:
        raise NotFoundError(
            subject,
            found=f"no dataset {min(absent)!r}",
            expected=f"one of {listed(volumes)}",
            remedy="name one of them with --dataset",
        )
    found = {name: short for name, short in volumes.items() if not wanted or {name, short} & wanted}
    odd = next((name for name in found if not is_text(name)), None)
    if odd is not None:
        raise DataError(
            subject,
            found=f"dataset {odd!r}, a name that is no UTF-8",
            expected="names that are text",
            remedy="rename it, or name those that are wanted with --dataset",
        )
    return found


def check_extents(subject: str, cubes: Sequence[RawCube]) -> None:
    """Refuse volumes of one sample that differ in their extents (D, H, W)."""
    extents = {cube.dataset: cube.volume_shape[1:] for cube in cubes}
    if len(set(extents.values())) > 1:
        raise UsageError(
            subject,
            found="volumes of different extents, "
            + ", ".join(f"{name} {shape}" for name, shape in list(extents.items())[:_LISTED]),
            expected="one extent (D, H, W) for the volumes of a sample",
            remedy="name those that belong together with --dataset",
        )


IMAGE = "image"
"""Name of a volume that nothing in its file or its place names."""


def check_image_names(path: Path, names: Sequence[str]) -> None:
    """Refuse volumes that would hide each other."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path}", found=f"two volumes {twice[0]!r}", expected="each name once")


def wanted_images(path: Path, names: Sequence[str], hints: Hints) -> tuple[str, ...]:
    """Return the names that the caller wants, in the file's order; raises NotFoundError on one that is not there."""
    absent = [name for name in hints.datasets if name not in names]
    if absent:
        raise NotFoundError(
            f"{path}",
            found=f"no volume {absent[0]!r}",
            expected=f"some of {', '.join(names)}",
            remedy="name one of them with --dataset",
        )
    return tuple(name for name in names if not hints.datasets or name in hints.datasets)


_DIGITS = 4
"""Digits of a number at least, so that parts of files of different lengths sort alike."""


def part_name(index: tuple[int, ...], counts: tuple[int, ...]) -> str:
    """Return the name of one of ``prod(counts)`` samples, padded with zeros; empty where there is only one.

    >>> part_name((7,), (128,)), part_name((3, 12), (8, 101)), part_name((0,), (1,))
    ('0007', '0003_0012', '')
    """
    if prod(counts) == 1:
        return ""
    widths = [max(_DIGITS, len(str(count - 1))) for count in counts]
    return "_".join(f"{number:0{width}d}" for number, width in zip(index, widths, strict=True))
