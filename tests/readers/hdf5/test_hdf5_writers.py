"""HDF5 files that somebody writes to, and chunks that were written in unusual ways."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support import processes
from voxload.errors import DataError, StorageError
from voxload.readers import Location, open_reader
from voxload.readers.hdf5 import quirks
from voxload.readers.hdf5.file import is_open_for_writing

pytestmark = pytest.mark.usefixtures("no_leaks")

WRITER = """
import sys, h5py, numpy
path, version, is_swmr = sys.argv[1:]
file = h5py.File(path, "w", libver=version)
data = file.create_dataset("x", data=numpy.arange(64, dtype="<i2").reshape(4, 4, 4), chunks=(2, 2, 2))
file.flush()
if is_swmr == "True":
    file.swmr_mode = True
print("ready", flush=True)
if sys.stdin.readline():
    data[0] = 7
    file.flush()
    print("written", flush=True)
    sys.stdin.readline()
file.close()
"""


@contextmanager
def writing(path: Path, version: str, *, is_swmr: bool = False, locks: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a file open for writing."""
    environment = {**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE" if locks else "FALSE"}
    command = [sys.executable, "-c", WRITER, str(path), version, str(is_swmr)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == "ready\n"
            yield writer
        finally:
            writer.stdin.close()
            writer.wait(processes.LIMIT)


def _read(laws: ModuleType, path: Path) -> tuple[str, Any]:
    reader = open_reader(Location(str(path), "x"))
    try:
        return reader.describe().route, laws.read(reader, reader.describe().whole)
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("version", "is_swmr", "locks", "words"),
    [
        ("latest", True, True, "open for writing.*h5clear"),
        ("latest", False, False, "open for writing.*h5clear"),
        ("earliest", False, True, "temporarily unavailable"),
    ],
)
def test_a_file_that_libhdf5_will_not_share_is_an_error_of_the_storage(
    laws: ModuleType, tmp_path: Path, version: str, is_swmr: bool, locks: bool, words: str
) -> None:
    """While its writer lives the file is refused, and the same read works once it is closed."""
    path = tmp_path / "x.h5"
    with writing(path, version, is_swmr=is_swmr, locks=locks):
        assert is_open_for_writing(str(path))
        with pytest.raises(StorageError, match=words):
            _read(laws, path)
    assert not is_open_for_writing(str(path))
    route, voxels = _read(laws, path)
    assert route == "native"
    assert voxels.ravel().tolist() == list(range(64))


@pytest.mark.parametrize("version", ["earliest", "v108"])
def test_a_file_that_is_shared_unawares_is_read_through_h5py(
    laws: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Older versions of the format are not protected without locks: they are not read natively, and changes noticed."""
    path = tmp_path / "x.h5"
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "FALSE")
    with writing(path, version, locks=False) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        with h5py.File(path, "r", locking=False):
            pass
        reader = open_reader(Location(str(path), "x"))
        assert reader.describe().route == "h5py: the file is open for writing"
        whole = reader.describe().whole
        assert laws.read(reader, whole).ravel().tolist() == list(range(64))
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "written\n"
        with pytest.raises(DataError, match="changed since it was opened"):
            laws.read(reader, whole)
        reader.close()
    assert _read(laws, path)[0] == "native"


def test_a_writer_that_died_leaves_a_file_that_is_refused(laws: ModuleType, tmp_path: Path) -> None:
    """After a crash the flags stay, and with them the refusal, which says how to go on."""
    with writing(tmp_path / "x.h5", "latest") as writer:
        writer.kill()
    with pytest.raises(StorageError, match=r"whose writer did not close it.*h5clear --status"):
        _read(laws, tmp_path / "x.h5")


def _write_with_bare_edges(path: Path, stored: np.ndarray[Any, Any], filters: str) -> None:
    """Write chunks of 4^3 whose partial ones skip all filters; h5py has no name for that, but libhdf5 does."""
    library = ctypes.CDLL(h5py.h5p.__file__)
    library.H5Pset_chunk_opts.argtypes = (ctypes.c_int64, ctypes.c_uint)
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 4, 4))
        assert library.H5Pset_chunk_opts(plist.id, 2) == 0
        for letter in filters:
            {"s": plist.set_shuffle, "g": lambda: plist.set_deflate(4), "f": plist.set_fletcher32}[letter]()
        kind, space = h5py.h5t.py_create(stored.dtype, logical=True), h5py.h5s.create_simple(stored.shape)
        h5py.h5d.create(file.id, b"x", kind, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, stored)


@pytest.mark.parametrize("shape", [(7, 6, 5), (8, 6, 8), (4, 4, 5), (8, 8, 8)])
@pytest.mark.parametrize("filters", ["s", "sg", "g", "f", "sgf"])
def test_edge_chunks_that_skip_the_filters_are_read(
    laws: ModuleType, tmp_path: Path, shape: tuple[int, ...], filters: str
) -> None:
    """Partial chunks were stored bare, and say so nowhere: they are neither unshuffled nor decoded."""
    stored = laws.voxels(shape, "<i4")
    _write_with_bare_edges(tmp_path / "x.h5", stored, filters)
    with h5py.File(tmp_path / "x.h5") as file:
        assert quirks.are_unfiltered(file["x"])
        assert file["x"][()].tobytes() == stored.tobytes()
    route, voxels = _read(laws, tmp_path / "x.h5")
    assert route == "native"
    assert laws.same_bits(voxels, stored[np.newaxis])


def test_where_the_library_cannot_be_asked_edges_are_h5pys(
    laws: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the function, partial chunks with filters are not guessed at."""
    monkeypatch.setattr(quirks, "_chunk_options", lambda: None)
    for shape, expected in (((7, 6, 5), "h5py: chunks at the edges"), ((8, 8, 4), "native")):
        stored = laws.voxels(shape, "<i4")
        _write_with_bare_edges(tmp_path / "x.h5", stored, "s")
        route, voxels = _read(laws, tmp_path / "x.h5")
        assert route.startswith(expected)
        assert laws.same_bits(voxels, stored[np.newaxis])
