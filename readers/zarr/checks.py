"""Checks of one Zarr array before zarr-python reads it: what it would call damaged, decode wrongly or crash at."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import zarr
from zarr.core.metadata import ArrayV2Metadata
from zarr.dtype import data_type_registry

from voxload.errors import DataError, UsageError
from voxload.geometry import Box, chunks_touched
from voxload.readers.axes import Names
from voxload.readers.cfpacking import FILLS, Packed, Packing, check_packing, packing_of
from voxload.readers.decode.blosc import HEADER_BYTES, check_header
from voxload.readers.pasting.pasteplan import Place
from voxload.readers.protocol import Location
from voxload.readers.store import Store
from voxload.readers.zarr.chunkindex import ChunkIndex
from voxload.readers.zarr.dimensions import XARRAY_DIMENSIONS, named_dimensions

_LARGEST_METADATA = 2**20
"""Bytes of metadata that are looked at; those of one array are a few KiB."""
_REFUSALS = {
    "elements of type {}, which numpy and zarr-python do not know": (
        "integers or floats of 1 to 8 bytes a voxel",
        "store it as a type that numpy has, such as float32 or int8, with the program that wrote it",
    ),
    "storage transformers: {}": ("none", "write the array without them, with the program that wrote it"),
}
"""What is found, with a place for its name; what is expected instead, and what to do."""
_TYPE, _TRANSFORMERS = _REFUSALS
_PLACES: tuple[tuple[str, str, Literal[2, 3]], ...] = (("zarr.json", "data_type", 3), (".zarray", "dtype", 2))
"""Metadata, the key of the type in them, and their format."""


@contextmanager
def naming_types(store: Store, subject: str, names: Iterable[str]) -> Iterator[None]:
    """Refuse an array whose type or transformers zarr-python does not know, where it would be called damaged.

    zarr-python raises ValueError for such ones as it does for broken metadata, so these are looked at once more.

    Parameters
    ----------
    store
        Where the arrays are.
    subject
        What the message is about.
    names
        The arrays that may be to blame, below the store's root, looked at only then; an empty name is the root itself.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        for name in names:
            unknown = _unknown(store, name)
            if unknown is not None:
                kind, found = unknown
                expected, remedy = _REFUSALS[kind]
                whose = f"{subject}:{name}" if name and not subject.endswith(f":{name}") else subject
                raise UsageError(whose, found=kind.format(found), expected=expected, remedy=remedy) from error
        raise


def local_arrays(path: str) -> Iterator[str]:
    """Yield the names of the arrays in a folder, without a look at their chunks; nothing of a URL."""
    for folder, folders, files in os.walk(path):
        folders.sort()
        name = os.path.relpath(folder, path)
        if ".zarray" in files or ("zarr.json" in files and _is_array(os.path.join(folder, "zarr.json"))):  # noqa: PTH118
            folders.clear()
            yield "" if name == "." else name


def _is_array(metadata: str) -> bool:
    with open(metadata, "rb") as file:  # noqa: PTH123 - a string, as all of a walk
        try:
            found = json.loads(file.read(_LARGEST_METADATA))
        except ValueError:
            return False
    return isinstance(found, dict) and found.get("node_type") == "array"


def _unknown(store: Store, name: str) -> tuple[str, str] | None:
    """Return what of an array's metadata zarr-python does not know, and its name there; None where that is nothing."""
    for mark, key, version in _PLACES:
        part = store.edge(f"{name}/{mark}".lstrip("/"), _LARGEST_METADATA, at_end=False)
        if part is None:
            continue
        try:
            metadata = json.loads(part.data.tobytes())
        except ValueError:  # damaged
            return None
        if not isinstance(metadata, dict):
            return None
        found = metadata.get(key)
        if found is not None and not _is_known(found, version):
            return _TYPE, _named(found)
        transformers = metadata.get("storage_transformers") if version == 3 else None
        transformers = transformers if isinstance(transformers, list) else []
        return (_TRANSFORMERS, ", ".join(map(_named, transformers))) if transformers else None
    return None


def _is_known(stored: Any, version: Literal[2, 3]) -> bool:
    # Of format 2 the registry wants the codec of objects beside the type: numbers have none.
    data = stored if version == 3 else {"name": stored, "object_codec_id": None}
    match: Callable[..., Any] = data_type_registry.match_json
    try:
        match(data, zarr_format=version)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def _named(stored: Any) -> str:
    """Return a type for a message: its name, or as much of what stands in its place as is readable."""
    name = stored.get("name", stored) if isinstance(stored, dict) else stored
    return repr(name)[:80]


def packing(array: zarr.Array[Any], subject: str, packed: Packed) -> tuple[Packing, ...]:
    """Return what an array's numbers stand for, of all channels, or nothing where they stand for themselves.

    Costs no request. Raises UsageError as `packing_of`, and where numbers stand for others though `packed` refuses it.
    """
    attributes, dtype = _attributes(array), np.dtype(array.dtype)
    if packed is Packed.REFUSED or (packed is Packed.KNOWN and not any(dimension_names(array) or ())):
        check_packing(subject, attributes, dtype)
        return ()
    found = packing_of(subject, attributes, dtype)
    return () if found is None else (found,)


def dimension_names(array: zarr.Array[Any]) -> Names:
    """Return the names of an array's dimensions; see `named_dimensions`."""
    metadata = array.metadata
    return named_dimensions(getattr(metadata, "dimension_names", None), metadata.attributes, array.ndim)


def _attributes(array: zarr.Array[Any]) -> dict[str, Any]:
    """Return an array's attributes, and its fill value where that is one.

    In format 2 xarray keeps ``_FillValue`` not as an attribute but as the array's fill value. Zero is zarr's own
    default there and says nothing; what else an array of xarray's has marks voxels without a value.
    """
    attributes = dict(array.metadata.attributes)
    fill = array.metadata.fill_value
    is_xarray = isinstance(array.metadata, ArrayV2Metadata) and XARRAY_DIMENSIONS in attributes
    if is_xarray and fill is not None and np.asarray(fill).dtype.kind in "iuf" and fill != 0:
        attributes.setdefault(FILLS[0], fill)
    return attributes


_CRC_BYTES = 4
"""A checksum behind a chunk (Zarr v3, crc32c codec); zarr-python looks at it before it decodes."""
_BATCH = 2**12
"""Chunks that are looked at together."""


class ChunkHeaders:
    """Checks the headers of blosc chunks.

    numcodecs decodes a blosc chunk without a look at how long it is: of one that is cut short it reads what lies behind
    it in memory, and of one whose header claims gigabytes it takes them.

    Parameters
    ----------
    location
        The array, for messages.
    codecs
        Names of its codecs, the one that was applied last at the end.
    """

    def __init__(self, location: Location, codecs: Sequence[str]) -> None:
        self._location = location
        below = list(codecs)
        while below and below[-1] == "crc32c":
            below.pop()
        self._sums_bytes = _CRC_BYTES * (len(codecs) - len(below))
        places = [place for place, name in enumerate(below) if "blosc" in name]
        self._has_blosc = bool(places)
        self._is_inside = any(place < len(below) - 1 for place in places)

    def check(self, index: ChunkIndex, store: Store, stored: Box) -> None:
        """Check every chunk that holds voxels of `stored`; chunks that are not there are none.

        Raises
        ------
        DataError
            Naming a chunk that is not as long as its header says.
        UsageError
            When another codec hides the headers.
        """
        if not self._has_blosc:
            return
        touched = chunks_touched(stored, index.layout.unit)
        places = itertools.product(*map(range, touched.start, touched.stop))
        while some := list(itertools.islice(places, _BATCH)):
            heads = store.map(lambda place: index.head(place, HEADER_BYTES), some)
            for place, head in zip(some, heads, strict=True):
                if head is not None:
                    self.check_chunk(place, *head)

    def check_chunk(self, place: Place, head: Any, size: int) -> None:
        """Check one chunk of `size` bytes by the first of them; raises as `check` does."""
        if not self._has_blosc:
            return
        if self._is_inside:
            raise UsageError(
                f"{self._location}",
                found="blosc before another codec that only zarr-python decodes",
                expected="blosc as the last codec: numcodecs reads beyond the end of damaged data, and nothing sees it",
                remedy="store it again with other codecs",
            )
        try:
            check_header(head, size - self._sums_bytes)
        except ValueError as error:
            raise DataError(
                f"{self._location}, chunk {place}",
                found=str(error),
                expected="decodable data",
                remedy="copy or convert it again: it is damaged or incomplete",
            ) from error
