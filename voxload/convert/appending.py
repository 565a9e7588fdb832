"""Appending: conversions of many sources, at once or one after the other, whose samples one catalogue gathers.

Each source is converted in a folder of its own below the samples' folder, as any conversion is: locked, taken up where
it was killed, complete before it has a name. Then its rows are appended.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from voxload.catalog import CATALOG_NAME, Rows
from voxload.catalog.append import PATIENCE, append
from voxload.catalog.generations import is_growing
from voxload.convert.options import ConvertOptions, ConvertReport
from voxload.convert.run import OnProgress, convert
from voxload.errors import UsageError
from voxload.files.names import safe_dataset

PARTS = "parts"
"""Folder of the conversions, in that of the samples."""


def convert_and_append(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    options: ConvertOptions | None = None,
    progress: OnProgress | None = None,
    patience: float = PATIENCE,
) -> ConvertReport:
    """Convert the raw cubes under `src`, and add them to the catalogue in `dst`, which others add to meanwhile.

    The same source again is taken up, or changes nothing. Takes what `convert` does.

    Parameters
    ----------
    patience
        Seconds to wait for others that write the catalogue.

    Raises
    ------
    UsageError
        When the catalogue in `dst` was written by a conversion that was not appended, or tasks share this one.
    VoxloadError
        As `convert` and `voxload.catalog.append` do.
    """
    source, target = Path(src), Path(dst)
    if options is not None and options.share is not None:
        raise UsageError(
            "--append",
            found="a share of a conversion",
            expected="a source of its own for each task",
            remedy="leave --tasks out",
        )
    place = target / CATALOG_NAME
    if place.exists() and not is_growing(place):
        raise UsageError(
            f"catalogue {place}",
            found="what a conversion without --append wrote, or a damaged one",
            expected="one that is appended to",
            remedy=f"append into another folder, and this one's rows to it: voxload catalog append FOLDER {target}",
        )
    part = target / PARTS / part_name(source)
    part.parent.mkdir(parents=True, exist_ok=True)
    report = convert(source, part, options=options, progress=progress)
    done = append(place, [Rows.read(part)], patience=patience)
    return replace(report, catalog=place, generation=done.generation)


def part_name(source: Path) -> str:
    """Return the name of a source's folder: its own, and what tells it from others of that name."""
    path = os.path.realpath(source)
    digest = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{safe_dataset(Path(path).stem)}-{digest}"
