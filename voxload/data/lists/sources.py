"""Sources: what the user named, a catalogue, files or objects, as paths, and their ids."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog
from voxload.errors import NotFoundError, UsageError
from voxload.readers.remote.zarrstores import StoreName, is_zarr_store
from voxload.readers.shards import is_shard, samples_of, shown_name
from voxload.readers.store import is_url
from voxload.readers.xarrays import XarrayName, is_xarray


class ZarrSource(Protocol):
    """A store, a group or an array of zarr-python's."""

    @property
    def read_only(self) -> bool:
        """Whether it may not be written to."""
        ...


class XarraySource(Protocol):
    """A Dataset, a DataArray or a DataTree of xarray's."""

    @property
    def sizes(self) -> Mapping[Any, int]:
        """Extents by the names of dimensions."""
        ...


Source = str | Path | Catalog | ZarrSource | XarraySource | Sequence[str | Path | ZarrSource | XarraySource]
"""A catalogue or its path, a file, a folder, a glob, a URL, a store of zarr-python's contract or an object of xarray's;
or a list of these."""


def named_objects(source: Any) -> Any:
    """Return names in place of zarr-python's stores, groups and arrays and of xarray's objects, alone or in a list."""
    if isinstance(source, list | tuple):
        return [named_objects(one) for one in source]
    if is_zarr_store(source):
        return StoreName(source)
    if is_xarray(source):
        return XarrayName(source)
    is_zarrs = type(source).__module__.startswith("zarr.") and isinstance(getattr(source, "path", None), str)
    return StoreName(source.store, source.path) if is_zarrs and is_zarr_store(source.store) else source


def check_source(source: Any) -> None:
    """Refuse arrays, open files and tables, whose elements or keys would be taken for paths."""
    if isinstance(source, str | os.PathLike | Catalog):
        return
    if not isinstance(source, Sequence) or isinstance(source, bytes):
        raise UsageError(
            "data set",
            found=f"an object of type {type(source).__module__}.{type(source).__qualname__}",
            expected="a catalogue, path, pattern or URL, an object of zarr-python's or xarray's, or a list of these",
            remedy="name the file that it came from, or store it first",
        )
    for path in source:
        if not isinstance(path, str | os.PathLike):
            raise UsageError("data set", found=f"{path!r} in the list", expected="paths")


def catalog_at(source: str | Path | Sequence[str | Path], *, allow_outside: bool) -> Catalog | None:
    """Return the catalogue that a path names, itself or by its folder; None when it names something else."""
    if not isinstance(source, str | Path):
        return None
    if is_url(str(source)):
        is_catalog = str(source).endswith(".parquet")
        return Catalog.read(source, allow_outside=allow_outside, has_statistics=False) if is_catalog else None
    path = Path(source)
    if path.suffix == ".parquet":
        return Catalog.read(path, allow_outside=allow_outside, has_statistics=False)
    inside = path / CATALOG_NAME
    return Catalog.read(inside, allow_outside=allow_outside, has_statistics=False) if inside.is_file() else None


def paths_of(source: str | Path | Sequence[str | Path]) -> list[str]:
    """Return the files that a path, a glob or a list names."""
    if isinstance(source, str | Path):
        text = os.fspath(source)
        if is_url(text) or Path(text).exists():
            return _with_samples([text])
        found = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if found:
            return _with_samples(found)
        what = "no match" if glob.has_magic(text) else "no such file or folder"
        raise NotFoundError(text, found=what, remedy="check the path or the pattern")
    paths = [os.fspath(path) for path in source]
    if not paths:
        raise UsageError("data set", found="an empty list of files", expected="one file or more")
    return _with_samples(paths)


def _with_samples(paths: Sequence[str]) -> list[str]:
    """Return paths, those of archives replaced by the names of the samples in them, whose headers are read."""
    found: list[str] = []
    for path in paths:
        found.extend([str(one.name) for one in samples_of(path)] if is_shard(path) else [path])
    return found


def ids_of(paths: Sequence[str]) -> list[str]:
    """Return ids: paths below their common folder, without suffix where that keeps them apart."""
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise UsageError("data set", found=f"{twice[0]} twice", expected="each file once")
    paths = [shown_name(path) for path in paths]
    if any(is_url(path) for path in paths):
        return list(paths)
    # Strings, for a path object of each of 262,144 files takes seconds.
    whole = [os.path.abspath(path) for path in paths]  # noqa: PTH100
    common = os.path.commonpath({os.path.dirname(path) for path in whole})  # noqa: PTH120
    below = len(os.path.join(common, ""))  # noqa: PTH118
    names = [path[below:].replace(os.sep, "/") for path in whole]
    short = [os.path.splitext(name)[0] for name in names]  # noqa: PTH122
    return short if len(set(short)) == len(short) else names
