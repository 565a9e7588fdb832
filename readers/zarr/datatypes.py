"""Element types and storage transformers that zarr-python does not know: named for what they are, not called damage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from zarr.dtype import data_type_registry

from voxload.errors import UsageError
from voxload.readers.store import Store

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
