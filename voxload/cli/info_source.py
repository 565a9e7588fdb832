"""RawListing: the cubes of a raw file or folder, as a conversion would find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from voxload.cli.info_planes import Cube, central_planes, draw_planes
from voxload.convert.gridding import open_cubes
from voxload.convert.plan.finding import FoundCube, find_cubes
from voxload.convert.sources.hints import Hints
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.registry import find_format
from voxload.errors import NotFoundError

_LISTED = 10
"""Names that a message lists at most."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which cubes are wanted; empty for any."""

    sample: str = ""
    """Sample id, as a conversion gives it."""
    dataset: str = ""
    """Name of the volume."""
    part: str = ""
    """Which of several samples in a file."""

    def has(self, found: FoundCube) -> bool:
        """Tell whether a cube is wanted."""
        cube = found.cube
        datasets = {self.dataset.strip("/"), self.dataset.rsplit("/", 1)[-1], self.dataset.replace("/", "_")}
        return (
            self.sample in ("", found.sample)
            and self.part in ("", cube.part)
            and (not self.dataset or cube.dataset in datasets)
        )


@dataclass(frozen=True, slots=True)
class RawListing:
    """What a raw file or a folder of them holds; no voxel was read."""

    path: str
    """The file or folder."""
    format: str
    """Name of the file's format; empty of a folder, whose files may be of several."""
    cubes: tuple[FoundCube, ...]
    """The cubes, at least one, in the order of their samples."""
    ignored: tuple[str, ...]
    """Files that are no raw cubes."""

    @classmethod
    def look(cls, path: str, hints: Hints, choice: Choice) -> RawListing:
        """List the cubes that are chosen.

        Raises
        ------
        NotFoundError
            When there is no such path, no raw cube, or none that is chosen.
        UsageError
            When the format cannot be told, or the file does not say what only the caller can.
        DataError
            When a file is damaged.
        """
        found, ignored = find_cubes(
            Path(path), Path(path), partial(open_cubes, hints=hints), allow_outside=hints.allow_outside
        )
        chosen = [one for one in found if choice.has(one)]
        if not chosen:
            raise NotFoundError(
                path, found=f"no cube of {_named(choice)}", expected=f"one of {_listed(found)}", remedy="name one"
            )
        return cls(path, _format(Path(path), hints), tuple(chosen), tuple(ignored))

    @property
    def is_one_volume(self) -> bool:
        """Whether it is one file of one cube."""
        return len(self.cubes) == 1 and bool(self.format) and not self.cubes[0].cube.part

    def figures(self) -> dict[str, Any]:
        """Return all cubes as plain values."""
        return {
            "path": self.path,
            "source": self.format,
            "samples": len({found.sample for found in self.cubes}),
            "cubes": [_figures(found) for found in self.cubes],
            "ignored": list(self.ignored),
        }

    def plot(self, path: Path) -> None:
        """Draw the three central planes of the first cube."""
        found = self.cubes[0]
        cube = Cube.of_source(found.cube)
        with found.source.open() as read_into:
            planes = central_planes(cube, read_into)
        draw_planes(planes, path, cube=cube, name=f"{found.cube.path.name}, {found.sample}:{found.cube.dataset}")


def _figures(found: FoundCube) -> dict[str, Any]:
    cube = found.cube
    return {
        "sample": found.sample,
        "part": cube.part,
        "dataset": cube.dataset,
        "path": str(cube.path),
        "shape": list(cube.volume_shape),
        "axes": cube.order.axes,
        "dtype": cube.dtype.str,
        "decoded_bytes": prod(cube.shape) * cube.dtype.itemsize,
        "is_sequential": cube.is_sequential,
        "targets": dict(cube.targets),
        "attributes": dict(cube.attributes),
    }


def _format(path: Path, hints: Hints) -> str:
    if hints.headerless is not None:
        return "headerless binary"
    known = find_format(Probe(path), hints.kind) if path.is_file() or path.suffix == ".zarr" else None
    return known.name if known is not None else ""


def _named(choice: Choice) -> str:
    named = {"sample": choice.sample, "dataset": choice.dataset, "part": choice.part}
    return ", ".join(f"{name} {value!r}" for name, value in named.items() if value)


def _listed(found: Sequence[FoundCube]) -> str:
    names = [f"{one.sample}:{one.cube.dataset}" for one in found]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"
