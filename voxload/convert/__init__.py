"""Conversion of raw cubes into chunked, catalogued samples.

In come files of any raw format, out come Zarr or HDF5 volumes with their catalogue. A cube passes `plan` (found,
named, cut), `sources` (read), `encode` (tiles to chunks with their statistics), `storage` (bytes of a format) and
`write` (final name, catalogue); `executors` say who writes. Read `run` first. Other rooms import this package,
`manifest`, `layout` and `options`; the contract `sources.protocol` with `sources.hints`, `sources.probe` and
`sources.registry`; `plan.finding`; `write.writer` and `write.lock`; `storage.hdf5`; `gridding`.

Names are loaded when they are first used: who looks at files does not wait for what writes them. None of them is a
module's name, which would take its place.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxload.convert.appending import convert_and_append as convert_and_append
    from voxload.convert.dryrun import PlannedConversion as PlannedConversion
    from voxload.convert.dryrun import PlannedVolume as PlannedVolume
    from voxload.convert.dryrun import plan_conversion as plan_conversion
    from voxload.convert.gridding import Assignment as Assignment
    from voxload.convert.gridding import Gridding as Gridding
    from voxload.convert.gridding import GridPoints as GridPoints
    from voxload.convert.gridding import GridUnit as GridUnit
    from voxload.convert.gridding import ParticleChoice as ParticleChoice
    from voxload.convert.layout import Readers as Readers
    from voxload.convert.options import ConvertOptions as ConvertOptions
    from voxload.convert.options import ConvertReport as ConvertReport
    from voxload.convert.options import Packing as Packing
    from voxload.convert.options import Progress as Progress
    from voxload.convert.options import Share as Share
    from voxload.convert.options import StoredFormat as StoredFormat
    from voxload.convert.run import convert as convert
    from voxload.convert.sources.hints import Headerless as Headerless
    from voxload.convert.sources.hints import Hints as Hints
    from voxload.convert.sources.hints import MemoryOrder as MemoryOrder
    from voxload.convert.storage.compression import Compression as Compression

_HOMES = {
    "convert_and_append": "appending",
    "PlannedConversion": "dryrun",
    "PlannedVolume": "dryrun",
    "plan_conversion": "dryrun",
    "Assignment": "gridding",
    "Gridding": "gridding",
    "GridPoints": "gridding",
    "GridUnit": "gridding",
    "ParticleChoice": "gridding",
    "Readers": "layout",
    "ConvertOptions": "options",
    "ConvertReport": "options",
    "Packing": "options",
    "Progress": "options",
    "Share": "options",
    "StoredFormat": "options",
    "convert": "run",
    "Headerless": "sources.hints",
    "Hints": "sources.hints",
    "MemoryOrder": "sources.hints",
    "Compression": "storage.compression",
}
"""The module of each name."""

__all__ = [
    "Assignment",
    "Compression",
    "ConvertOptions",
    "ConvertReport",
    "GridPoints",
    "GridUnit",
    "Gridding",
    "Headerless",
    "Hints",
    "MemoryOrder",
    "Packing",
    "ParticleChoice",
    "PlannedConversion",
    "PlannedVolume",
    "Progress",
    "Readers",
    "Share",
    "StoredFormat",
    "convert",
    "convert_and_append",
    "plan_conversion",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
