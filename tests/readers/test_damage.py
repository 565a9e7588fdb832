"""Damage: whatever happens to the bytes, a read gives voxels or an error of the tree, never another exception."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec

from voxload.errors import VoxloadError
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(512, dtype="<i2").reshape(8, 8, 8) % 97


def _npy(path: Path) -> Path:
    np.save(path, CUBE)
    return path


def _zarr(**options: Any) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        zarr.create_array(path, data=CUBE, **{"chunks": (4, 4, 8), **options})
        return path

    return make


INPUTS: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "npy": ("x.npy", _npy, "x.npy"),
    "zarr v3 metadata": ("x", _zarr(), "x/zarr.json"),
    "zarr v2 metadata": ("x", _zarr(zarr_format=2, compressors=numcodecs.Zlib()), "x/.zarray"),
    "sharded metadata": ("x", _zarr(shards=(8, 8, 8)), "x/zarr.json"),
    "gzip chunk": ("x", _zarr(compressors=GzipCodec()), "x/c/0/1/0"),
    "zlib chunk": ("x", _zarr(zarr_format=2, compressors=numcodecs.Zlib()), "x/0.1.0"),
    "checked blosc chunk": ("x", _zarr(compressors=[BloscCodec(), Crc32cCodec()]), "x/c/0/1/0"),
    "shard": ("x", _zarr(shards=(8, 8, 8), compressors=[GzipCodec()]), "x/c/0/0/0"),
}
"""Name to the volume, its maker, and the file that gets damaged. HDF5 is left out: libhdf5 trusts its metadata."""


def damaged(data: bytes, edits: list[tuple[float, bytes]], keep: float) -> bytes:
    """Overwrite some bytes and cut off the end."""
    content = bytearray(data)
    for place, patch in edits:
        start = int(place * len(content))
        content[start : start + len(patch)] = patch
    return bytes(content[: max(1, round(keep * len(content)))])


@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning")
@pytest.mark.parametrize("name", INPUTS)
def test_no_damage_escapes_the_error_tree(tmp_path: Path, name: str) -> None:
    """Random edits and cuts of a file end in voxels of the described shape, or in one of our errors."""
    volume, make, victim = INPUTS[name]
    make(tmp_path / volume)
    sound = (tmp_path / victim).read_bytes()
    patch = st.one_of(
        st.binary(min_size=1, max_size=4),
        st.sampled_from([b"null", b"[]", b"{}", b'"', b"-1", b"0", b"9999", b"true", b"<f8", b"1e9"]),
    )

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(st.lists(st.tuples(st.floats(0, 0.999), patch), max_size=3), st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.01]))
    def law(edits: list[tuple[float, bytes]], keep: float) -> None:
        (tmp_path / victim).write_bytes(damaged(sound, edits, keep))
        try:
            reader = open_reader(Location(str(tmp_path / volume)))
            info = reader.describe()
            if info.decoded_bytes > 1 << 20:  # a damaged shape may be huge and still honest
                return
            out = np.empty(info.shape, info.native_dtype)
            with closing(reader):
                reader.read_into(info.whole, out)
        except VoxloadError as error:
            message = str(error)
            assert "\n" not in message

    law()


@pytest.mark.parametrize("name", ["gzip chunk", "zlib chunk", "checked blosc chunk", "shard"])
def test_a_flipped_bit_in_checked_bytes_is_found(tmp_path: Path, name: str) -> None:
    """Codecs with a checksum find every flipped bit: the read gives the true voxels or an error, no others."""
    volume, make, victim = INPUTS[name]
    make(tmp_path / volume)
    sound = (tmp_path / victim).read_bytes()
    found = 0
    for place in range(0, len(sound), max(1, len(sound) // 40)):
        content = bytearray(sound)
        content[place] ^= 1 << (place % 8)
        (tmp_path / victim).write_bytes(bytes(content))
        out = np.empty((1, 8, 8, 8), "<i2")
        try:
            with closing(open_reader(Location(str(tmp_path / volume)))) as reader:
                reader.read_into(reader.describe().whole, out)
        except VoxloadError:
            found += 1
        else:
            assert np.array_equal(out[0], CUBE)
    assert found


def test_a_truncated_hdf5_file_is_found_wherever_it_ends(tmp_path: Path) -> None:
    """Every shorter length of an HDF5 file is refused at opening."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=CUBE, chunks=(4, 4, 8), compression="gzip")
    sound = path.read_bytes()
    for length in range(0, len(sound), 97):
        path.write_bytes(sound[:length])
        caught = ""
        try:
            open_reader(Location(str(path)))
        except VoxloadError as error:
            caught = str(error)
        assert str(path) in caught
