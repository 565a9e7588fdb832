"""Claims: metadata that speak of sizes which no machine has, and what reading them allocates.

    python -m tests.support.damage.claims

Prints, for each claim, what was raised, as JSON. The process may allocate 64 MiB; memory that is asked for beyond
that raises MemoryError, which is none of the errors that a reader may raise.
"""

from __future__ import annotations

import json
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from tests.support.damage import patches
from tests.support.damage.faults import CHUNK, CUBE, START
from tests.support.damage.volumes import FORMS
from tests.support.fuzzing.worker import limit
from voxload.geometry import Box
from voxload.readers import Location, open_reader

_HUGE = 2**40
_BUDGET = 2**26
Change = Callable[[Path], object]


def claims() -> Iterator[tuple[str, str, Change]]:
    """Yield name, form and change of every claim."""
    for form in ("Zarr v3 raw", "Zarr v3 gzip", "Zarr v3 zstd", "Zarr v3 blosc", "Zarr v3 crc32c"):
        yield f"chunks of 2^120 voxels, {form}", form, _edit("zarr.json", '"chunk_shape"', CHUNK, _HUGE)
        yield f"chunks of 2^33 voxels, {form}", form, _edit("zarr.json", '"chunk_shape"', CHUNK, 2**11)
    for form in ("Zarr v2 raw", "Zarr v2 zlib", "Zarr v2 blosc", "Zarr v2 lz4"):
        yield f"chunks of 2^120 voxels, {form}", form, _edit(".zarray", '"chunks"', CHUNK, _HUGE)
    for form in ("sharded Zarr raw", "sharded Zarr gzip"):
        yield f"shards of 2^120 voxels, {form}", form, _edit("zarr.json", '"chunk_shape"', (4, 8, 8), _HUGE)
        yield f"chunks of 2^120 voxels, {form}", form, _grow_all
    for form in ("HDF5 raw", "HDF5 gzip", "HDF5 blosc"):
        yield f"stored chunk of 2^32 bytes, {form}", form, lambda p: patches.point_in_hdf5(p, START, size=2**32 - 1)
        yield f"extent of 2^31, {form}", form, lambda p: _replace(p, struct.pack("<3Q", 8, 8, 8), (2**31, 8, 8), "<3Q")
        yield (f"chunks of 2^93 voxels, {form}", form,
               lambda p: _replace(p, struct.pack("<4I", *CHUNK, 2), (2**31,) * 3 + (2,), "<4I"))  # fmt: skip
    for form, place, size in (
        ("HDF5 blosc", 4, struct.pack("<I", 2**31 - 1)),
        ("HDF5 lz4", 0, struct.pack(">Q", 2**50)),
        ("HDF5 bitshuffle", 0, struct.pack(">Q", 2**50)),
        ("HDF5 szip", 0, struct.pack("<I", 2**32 - 1)),
        ("HDF5 blosc2", 30, struct.pack(">Q", 2**50)),
        ("HDF5 zstd", 4, b"\xe0" + struct.pack("<Q", 2**50)),
    ):
        yield f"decoded size in a header, {form}", form, _overwrite_h5(place, size)
    for form, place, size in (
        ("Zarr v2 lz4", 0, struct.pack("<I", 2**31 - 1)),
        ("Zarr v3 blosc", 4, struct.pack("<I", 2**31 - 1)),
        ("Zarr v3 zstd", 4, b"\xe4" + struct.pack("<Q", 2**50)),
    ):
        yield f"decoded size in a header, {form}", form, _overwrite_zarr(place, size)
    yield (
        "extents of 2^40, npy",
        "npy",
        lambda p: p.write_bytes(
            p.read_bytes().replace(
                b"(8, 8, 8), }" + b" " * 33, f"({_HUGE}, {_HUGE}, {_HUGE})".encode().ljust(42) + b" }"
            )
        ),
    )


def _edit(name: str, key: str, old: tuple[int, ...], new: int) -> Change:
    """Return a change of one shape in a metadata document, whatever its white space."""

    def change(path: Path) -> None:
        document = path / name
        text = document.read_text()
        start = text.index(key)
        stop = text.index("]", start)
        if json.loads(text[text.index("[", start) : stop + 1]) != list(old):
            raise ValueError(f"{key} of {document} is not {old}")
        document.write_text(text[:start] + f"{key}: {json.dumps([new] * len(old))}" + text[stop + 1 :])

    return change


def _grow_all(path: Path) -> None:
    """Let shards and inner chunks both be huge."""
    document = path / "zarr.json"
    metadata = json.loads(document.read_text())
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [_HUGE] * 3
    metadata["codecs"][0]["configuration"]["chunk_shape"] = [_HUGE] * 3
    document.write_text(json.dumps(metadata))


def _replace(path: Path, old: bytes, new: tuple[int, ...], layout: str) -> None:
    """Replace the only place that holds `old`; only the first where HDF5 keeps a copy as the largest extent."""
    content = path.read_bytes()
    if old not in content:
        raise ValueError(f"no {old!r} in {path}")
    path.write_bytes(content.replace(old, struct.pack(layout, *new)))


def _overwrite_h5(place: int, size: bytes) -> Change:
    def change(path: Path) -> None:
        data = bytearray(patches.stored_in_hdf5(path, START))
        data[place : place + len(size)] = size
        patches.store_in_hdf5(path, START, bytes(data))

    return change


def _overwrite_zarr(place: int, size: bytes) -> Change:
    def change(path: Path) -> None:
        victim = path / ("1.0.1" if (path / ".zarray").exists() else "c/1/0/1")
        data = bytearray(victim.read_bytes())
        data[place : place + len(size)] = size
        victim.write_bytes(data)

    return change


def read(location: Location) -> str:
    """Read a corner of a volume, and say what was raised."""
    try:
        with closing(open_reader(location)) as reader:
            info = reader.describe()
            box = Box((0, 0, 0), tuple(min(8, extent) for extent in info.spatial))
            reader.read_into(box, np.empty((info.shape[0], *box.shape), info.native_dtype))
    except Exception as error:  # noqa: BLE001 - the test says which are right
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main() -> None:
    """Read every claim within the budget."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        places = {}
        for number, (claim, form, change) in enumerate(claims()):
            folder = Path(name) / str(number)
            folder.mkdir()
            location = FORMS[form].make(folder, CUBE, CHUNK)
            change(Path(location.path))
            places[claim] = location
        limit(_BUDGET)
        print(json.dumps({claim: read(location) for claim, location in places.items()}, indent=1))


if __name__ == "__main__":
    main()
