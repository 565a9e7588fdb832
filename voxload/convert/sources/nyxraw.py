"""NyxRaw: the headerless snapshots of Nyx that NERSC serves.

``<N>/z<redshift>_<field>_<precision>.raw``, one (N, N, N) array in Fortran order. Source:
https://portal.nersc.gov/cfs/nyx/RT/README.md, which does not list the words for the precision.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from voxload.convert.sources.flat import FlatSource, describe_flat
from voxload.convert.sources.headerless import headerless_file
from voxload.convert.sources.hints import Headerless, Hints, MemoryOrder
from voxload.convert.sources.probe import Probe
from voxload.convert.sources.protocol import Source
from voxload.convert.sources.sizes import exact_cube_root, has_signature
from voxload.errors import DataError, UsageError

_NAME = re.compile(r"z(?P<redshift>\d+(?:\.\d+)?)_(?P<field>.+)_(?P<precision>[A-Za-z0-9]+)\.raw")
_SINGLE = ("f4", "f32", "float32", "fp32", "32", "32bit", "single", "sp", "float")
_DOUBLE = ("f8", "f64", "float64", "fp64", "64", "64bit", "double", "dp")
_DTYPES = {**dict.fromkeys(_SINGLE, "<f4"), **dict.fromkeys(_DOUBLE, "<f8")}


class NyxRaw:
    """Snapshots of Nyx; all fields of one redshift are volumes of one sample."""

    name = "Nyx raw"
    is_generic = False
    is_headerless = True
    """Whether the caller may say more of a file with --shape, --dtype and --order."""

    def claims(self, probe: Probe) -> bool:
        """Tell whether ``z<redshift>_<field>_<precision>.raw`` has the size of a cube, or lies in a folder ``<N>``.

        In such a folder a wrong size is a broken file, and no other kind.
        """
        match = _NAME.fullmatch(probe.path.name)
        if match is None or has_signature(probe):
            return False
        is_cube = any(exact_cube_root(probe.size // size) for size in (4, 8) if not probe.size % size)
        return is_cube or probe.path.parent.name.isdigit()

    def sources(self, probe: Probe, hints: Hints) -> tuple[Source, ...]:
        """Return the one cube.

        Raises
        ------
        UsageError
            When the name's precision is no known word.
        DataError
            When the size is no cube, or not that of the folder.
        """
        match = _NAME.fullmatch(probe.path.name)
        if match is None:
            raise UsageError(f"{probe.path}", found="another name", expected="z<redshift>_<field>_<precision>.raw")
        file = headerless_file(probe.path, hints.headerless or _facts(probe, match["precision"]), hints)
        cube = replace(
            describe_flat(file),
            dataset=match["field"],
            sample=f"z{match['redshift']}",
            attributes={"redshift": float(match["redshift"])},
        )
        return (FlatSource(cube, file),)


def _facts(probe: Probe, precision: str) -> Headerless:
    dtype = _DTYPES.get(precision.lower())
    if dtype is None:
        raise UsageError(
            f"{probe.path}",
            found=f"precision {precision!r}",
            expected=f"one of {', '.join(_DTYPES)}",
            remedy="say what it is with --shape, --dtype and --order F",
        )
    count, rest = divmod(probe.size, np.dtype(dtype).itemsize)
    extent, folder = None if rest else exact_cube_root(count), probe.path.parent.name
    if extent is None or (folder.isdigit() and int(folder) != extent):
        expected = f"{folder} voxels a side, as the folder says" if folder.isdigit() else "those of a cube"
        raise DataError(
            f"{probe.path}",
            found=f"{probe.size} bytes of {dtype}",
            expected=expected,
            remedy="the file is truncated, or its name is wrong",
        )
    return Headerless((extent,) * 3, dtype, MemoryOrder.F)
