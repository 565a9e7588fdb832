"""Faults: each wrong or broken HDF5, npy or raw file, the error it must raise, and words of its message."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from voxload.errors import DataError, NotFoundError, UsageError, VoxloadError
from voxload.readers import Location, open_reader

pytestmark = pytest.mark.usefixtures("no_leaks")

CUBE = np.arange(8 * 8 * 8, dtype="<i2").reshape(8, 8, 8)


Row = tuple[Callable[[Path], Location], type[VoxloadError], tuple[str, ...]]
"""Makes the input in a folder and says where it is; the error that opening or reading it raises; words of it."""


def h5(change: Callable[[h5py.File], object], **location: Any) -> Callable[[Path], Location]:
    """Return a maker of an HDF5 file."""

    def make(folder: Path) -> Location:
        path = folder / "x.h5"
        with h5py.File(path, "w") as file:
            change(file)
        return Location(str(path), **location)

    return make


def cut(make: Callable[[Path], Location], name: str, keep: float) -> Callable[[Path], Location]:
    """Return a maker of the same input with one file cut short."""

    def made(folder: Path) -> Location:
        location = make(folder)
        path = folder / name
        os.truncate(path, int(path.stat().st_size * keep))
        return location

    return made


def saved(name: str, data: bytes, **location: Any) -> Callable[[Path], Location]:
    """Return a maker of a plain file."""

    def make(folder: Path) -> Location:
        (folder / name).write_bytes(data)
        return Location(str(folder / name), **location)

    return make


def npy(values: np.ndarray[Any, Any], **location: Any) -> Callable[[Path], Location]:
    """Return a maker of an npy file."""

    def make(folder: Path) -> Location:
        np.save(folder / "x.npy", values, allow_pickle=True)
        return Location(str(folder / "x.npy"), **location)

    return make


def beside(file: h5py.File, name: str) -> str:
    """Return the path of another file in a file's folder."""
    return str(Path(file.filename).with_name(name))


def link_virtual(file: h5py.File) -> None:
    """Make a virtual dataset whose source file does not exist."""
    layout = h5py.VirtualLayout((8, 8, 8), "<i2")
    layout[:] = h5py.VirtualSource("absent.h5", "x", (8, 8, 8))
    file.create_virtual_dataset("x", layout)


def ask_unknown_filter(file: h5py.File) -> None:
    """Make a dataset with a filter that no library has."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 4, 4))
    plist.set_filter(511, h5py.h5z.FLAG_OPTIONAL, (1,))
    h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, h5py.h5s.create_simple((8, 8, 8)), plist)


def rot(file: h5py.File) -> None:
    """Write gzip chunks of which one is no deflate stream."""
    dataset = file.create_dataset("x", data=CUBE, chunks=(4, 4, 4), compression="gzip")
    dataset.id.write_direct_chunk((4, 4, 4), b"not deflated")


FAULTS: dict[str, Row] = {
    "missing path": (lambda p: Location(str(p / "no.h5")), NotFoundError, ("no.h5", "no such file")),
    "missing url": (lambda p: Location(f"file://{p}/no.zarr"), NotFoundError, ("no.zarr", "no volume")),
    "unknown protocol": (lambda _: Location("nowhere://x"), UsageError, ("nowhere", "VOXLOAD_URL_SCHEMES")),
    "folder of no format": (lambda p: Location(str(p)), UsageError, ("no volume that any reader knows",)),
    "file of no format": (saved("x.txt", b"words"), UsageError, ("no known header", "shape and dtype")),
    "empty file": (saved("x.h5", b""), UsageError, ("no known header",)),
    # HDF5
    "h5 missing dataset": (
        h5(lambda f: (f.create_dataset("a", data=CUBE), f.create_dataset("g/b", data=CUBE)), dataset="c"),
        NotFoundError, ("no dataset 'c'", "['a', 'g/b']"),
    ),
    "h5 dataset is a group": (
        h5(lambda f: f.create_dataset("g/b", data=CUBE), dataset="g"), NotFoundError, ("no dataset 'g'", "['g/b']")
    ),
    "h5 two volumes": (
        h5(lambda f: (f.create_dataset("a", data=CUBE), f.create_dataset("b", data=CUBE))),
        NotFoundError, ("2 volumes", "['a', 'b']", "name one"),
    ),
    "h5 no volume": (h5(lambda f: f.create_dataset("a", data=[1])), NotFoundError, ("0 volumes", "right file")),
    "h5 rank 2": (h5(lambda f: f.create_dataset("x", data=CUBE[0]), dataset="x"), UsageError, ("2 axes",)),
    "h5 rank 0": (h5(lambda f: f.create_dataset("x", data=1), dataset="x"), UsageError, ("0 axes",)),
    "h5 null dataspace": (
        h5(lambda f: f.create_dataset("x", dtype="<i2", data=h5py.Empty("<i2")), dataset="x"),
        UsageError, ("0 axes",),
    ),
    "h5 rank 4 without axes": (
        h5(lambda f: f.create_dataset("x", data=CUBE[None])), UsageError, ("four axes without names", "DHWC")
    ),
    "axes of another rank": (
        h5(lambda f: f.create_dataset("x", data=CUBE), axes="CDHW"), UsageError, ("3 axes for axes='CDHW'",)
    ),
    "axes of other letters": (
        h5(lambda f: f.create_dataset("x", data=CUBE), axes="XYZ"), UsageError, ("x.h5", "'XYZ'", "letters of")
    ),
    "axes twice": (
        h5(lambda f: f.create_dataset("x", data=CUBE), axes="DDH"), UsageError, ("x.h5", "'DDH'", "letters of")
    ),
    "h5 truncated": (
        cut(h5(lambda f: f.create_dataset("x", data=CUBE)), "x.h5", 0.7), DataError, ("x.h5", "truncated file")
    ),
    "h5 cut in its header": (
        cut(h5(lambda f: f.create_dataset("x", data=CUBE)), "x.h5", 0.01), DataError, ("x.h5",)
    ),
    "h5 chunk never written": (
        h5(lambda f: f.create_dataset("x", (8, 8, 8), "<i2", chunks=(4, 4, 4)).__setitem__(slice(0, 4), 1)),
        DataError, ("x.h5", "chunk (1, 0, 0) never written", 'missing="fill"'),
    ),
    "h5 contiguous never written": (
        h5(lambda f: f.create_dataset("x", (8, 8, 8), "<i2")), DataError, ("no value ever written",)
    ),
    "h5 damaged chunk": (h5(rot), DataError, ("x.h5", "chunk (1, 1, 1)", "copy or convert")),
    "h5 virtual": (h5(link_virtual), DataError, ("absent.h5", "no such file", "restore the source")),
    "h5 external": (
        h5(lambda f: f.create_dataset("x", (8, 8, 8), "<i2", external=[(beside(f, "absent.raw"), 0, 1024)])),
        DataError, ("absent.raw", "no such file", "external storage"),
    ),
    "h5 unknown filter": (h5(ask_unknown_filter), UsageError, ("filter 511", "not installed")),
    "h5 complex": (
        h5(lambda f: f.create_dataset("x", data=CUBE.astype("c8"))), UsageError, ("complex64", "an integer or floating")
    ),
    "h5 strings": (
        h5(lambda f: f.create_dataset("x", data=CUBE.astype("S3"))), UsageError, ("an integer or floating",)
    ),
    "h5 compound": (
        h5(lambda f: f.create_dataset("x", (2, 2, 2), [("a", "<i2")])), UsageError, ("an integer or floating",)
    ),
    "h5 no extent": (h5(lambda f: f.create_dataset("x", (0, 8, 8), "<i2")), DataError, ("extents of 1 or more",)),
    "catalogue says another shape": (
        h5(lambda f: f.create_dataset("x", data=CUBE), shape=(8, 8, 9)), DataError, ("(8, 8, 9) as catalogued",)
    ),
    "catalogue says another type": (
        h5(lambda f: f.create_dataset("x", data=CUBE), dtype="<f4"), DataError, ("<f4 as catalogued",)
    ),
    "catalogue says no type": (
        h5(lambda f: f.create_dataset("x", data=CUBE), dtype="counts"), UsageError, ("dtype 'counts'", "numpy type")
    ),
    # npy and raw
    "npy truncated": (cut(npy(CUBE), "x.npy", 0.7), DataError, ("x.npy", "damaged or incomplete")),
    "npy cut in its header": (cut(npy(CUBE), "x.npy", 0.05), DataError, ("x.npy",)),
    "npy pickled": (npy(np.full((2, 2, 2), None, object)), DataError, ("Python objects",)),
    "npy complex": (npy(CUBE.astype("c16")), UsageError, ("complex128",)),
    "npy no extent": (npy(CUBE[:0]), DataError, ("extents of 1 or more",)),
    "npy structured": (npy(np.zeros((2, 2, 2), [("a", "<i2")])), UsageError, ("an integer or floating",)),
    "npy rank 5": (npy(CUBE[None, None]), UsageError, ("5 axes",)),
    "npy damaged header": (
        saved("x.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': \x00     \n"), DataError, ("x.npy", "damaged")
    ),
    "npy no version": (saved("x.npy", b"\x93NUMPY\x09\x00"), DataError, ("x.npy",)),
    "raw too short": (
        saved("x.raw", CUBE.tobytes()[:-1], shape=(8, 8, 8), dtype="<i2"), DataError, ("1023 bytes", "1024 for")
    ),
    "raw too long": (
        saved("x.raw", CUBE.tobytes() + b"0", shape=(8, 8, 8), dtype="<i2"), DataError, ("1025 bytes", "has a header")
    ),
    "raw without dtype": (saved("x.raw", CUBE.tobytes(), shape=(8, 8, 8)), UsageError, ("no known header",)),
    "raw of no type": (
        saved("x.raw", CUBE.tobytes(), shape=(8, 8, 8), dtype="counts"), UsageError, ("dtype 'counts'",)
    ),
    "raw of objects": (saved("x.raw", bytes(64), shape=(2, 2, 2), dtype="O"), UsageError, ("a type of numbers",)),
    "raw of negative extents": (
        saved("x.raw", bytes(64), shape=(-2, -2, 8), dtype="<i2"), UsageError, ("extents of 1 or more",)
    ),
}  # fmt: skip

NEVER_WRITTEN = {"h5 chunk never written", "h5 contiguous never written"}
"""What ``missing="fill"`` reads."""


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_error(laws: ModuleType, tmp_path: Path, name: str) -> None:
    """A fault raises the error of who has to act, in one line that says what and where."""
    make, error, words = FAULTS[name]
    laws.check_fault(make(tmp_path), error, words, fills=name in NEVER_WRITTEN)


def test_a_missing_policy_of_another_name_is_refused(tmp_path: Path) -> None:
    """A misspelt policy is no silent fill."""
    location = npy(CUBE)(tmp_path)
    with pytest.raises(UsageError, match="missing: found 'ignore', expected 'error' or 'fill'"):
        open_reader(location, missing="ignore")
