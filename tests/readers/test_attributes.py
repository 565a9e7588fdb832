"""Attributes: as h5py and zarr-python read them, and in words what is none that an item can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from voxload.errors import DataError, NotFoundError, UsageError
from voxload.readers.attributes import Attributes, read_attribute

VALUES: dict[str, Any] = {
    "whole": 7,
    "real": 0.25,
    "text": "Mpc/h",
    "truth": True,
    "vector": [1, 2, 3],
    "table": [[0.5, 1.5], [2.5, 3.5]],
}
NODES = {"": "", "deep": "deep", "deep/full": "deep/full", "/deep/": "deep"}


Read = dict[str, dict[str, Any]]


def _hdf5(path: Path) -> Read:
    """Write all values to all nodes; return what h5py reads of them."""
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/full", data=np.zeros((2, 2, 2)))
        nodes = {node: file[node or "/"] for node in NODES.values()}
        for node in nodes.values():
            node.attrs.update(VALUES)
        return {name: dict(node.attrs) for name, node in nodes.items()}


def _zarr(path: Path, version: Any) -> Read:
    """Write all values to all nodes; return what zarr-python reads of them."""
    root = zarr.create_group(path, zarr_format=version)
    root.create_group("deep").create_array("full", data=np.zeros((2, 2, 2)))
    for node in set(NODES.values()):
        (root[node] if node else root).update_attributes(VALUES)
    again = zarr.open_group(path)
    return {node: dict((again[node] if node else again).attrs) for node in NODES.values()}


@pytest.mark.parametrize("kind", ["HDF5", "Zarr 2", "Zarr 3"])
def test_values_are_those_of_the_libraries(tmp_path: Path, kind: str) -> None:
    """Of the file, of groups and of datasets; numbers as Python's, lists as arrays."""
    path = tmp_path / "x"
    expected = _hdf5(path) if kind == "HDF5" else _zarr(path, int(kind[-1]))
    for node, meant in NODES.items():
        for name, wanted in VALUES.items():
            found = read_attribute(str(path), f"{node}@{name}")
            assert np.array_equal(found, expected[meant][name])
            if isinstance(wanted, list):
                assert isinstance(found, np.ndarray)
                assert found.dtype == np.array(wanted).dtype
            else:
                assert type(found) is type(wanted)
    for name in ("@absent", "deep@absent", "deep/full@absent"):
        with pytest.raises(NotFoundError, match="real"):
            read_attribute(str(path), name)
    with pytest.raises(NotFoundError, match=r"one of .*deep"):
        read_attribute(str(path), "depe@real")
    with pytest.raises(UsageError, match="node@attribute"):
        read_attribute(str(path), "deep@")


def test_what_hdf5_has_besides(tmp_path: Path) -> None:
    """Types of h5py's, old writers' fixed texts, and what is refused before it is read."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        attributes = file.attrs
        attributes["small"] = np.float32(0.5)
        attributes["big"] = np.array([1, 2], ">u2")
        attributes["fixed"] = np.bytes_("Gadget")
        attributes["texts of one"] = np.array(["a"], h5py.string_dtype())
        attributes["half"] = np.array([np.nan, 1], np.float16)
        attributes["beyond"] = np.array([2**63], np.uint64)
        attributes["texts"] = np.array(["a", "b"], h5py.string_dtype())
        attributes["reference"] = file.ref
        attributes["record"] = np.zeros(1, [("a", "f4")])
        attributes["complex"] = 1j
        attributes["nothing"] = h5py.Empty("f4")
    for name, value in {"small": 0.5, "fixed": "Gadget", "texts of one": "a"}.items():
        assert read_attribute(str(path), f"@{name}") == value
    big = read_attribute(str(path), "@big")
    assert isinstance(big, np.ndarray)
    assert big.dtype == np.int64
    assert big.tolist() == [1, 2]
    assert np.array_equal(np.asarray(read_attribute(str(path), "@half")), [np.nan, 1], equal_nan=True)
    for name in ("beyond", "texts", "reference", "record", "complex"):
        with pytest.raises(UsageError, match=f"x.h5:@{name}: .*catalogue"):
            read_attribute(str(path), f"@{name}")
    with pytest.raises(DataError, match="no value"):
        read_attribute(str(path), "@nothing")


def test_a_huge_attribute_is_refused_by_its_size(tmp_path: Path) -> None:
    """Kept apart from the header by HDF5, and not read at all here."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as file:
        file.attrs["table"] = np.zeros(2**17)
        file.attrs["most"] = np.zeros(2**13 - 8)
    with pytest.raises(UsageError, match="1,048,576 bytes"):
        read_attribute(str(tmp_path / "x.h5"), "@table")
    most = read_attribute(str(tmp_path / "x.h5"), "@most")
    assert isinstance(most, np.ndarray)
    assert most.shape == (2**13 - 8,)


def test_links_to_other_files_are_not_followed(tmp_path: Path) -> None:
    """What another file says is not what this one says."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.create_group("Header").attrs["Redshift"] = 2.0
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["Header"] = h5py.ExternalLink("other.h5", "Header")
        file["same"] = h5py.SoftLink("/own")
        file.create_group("own").attrs["Redshift"] = 3.0
    with pytest.raises(UsageError, match="link to another file"):
        read_attribute(str(tmp_path / "x.h5"), "Header@Redshift")
    assert read_attribute(str(tmp_path / "x.h5"), "same@Redshift") == 3.0


@pytest.mark.parametrize("value", [None, {"a": 1}, ["a"], [1, "a"], [[1], [1, 2]], [None]])
def test_what_json_has_besides(tmp_path: Path, value: Any) -> None:
    """Objects, texts in lists and lists of unequal lengths are refused; null is no value."""
    zarr.create_group(tmp_path / "x.zarr", attributes={"a": value})
    with pytest.raises(DataError if value is None else UsageError, match="@a"):
        read_attribute(str(tmp_path / "x.zarr"), "@a")


def test_formats_without_attributes_say_so(tmp_path: Path) -> None:
    """A file of one array has none."""
    np.save(tmp_path / "x.npy", np.zeros((2, 2, 2)))
    with pytest.raises(UsageError, match="keeps no attributes"):
        read_attribute(str(tmp_path / "x.npy"), "@a")
    with pytest.raises(NotFoundError, match="no such file"):
        read_attribute(str(tmp_path / "y.h5"), "@a")


def test_what_was_read_is_kept_until_the_file_is_another(tmp_path: Path) -> None:
    """`of` takes what is known, `learn` looks."""
    path = str(tmp_path / "x.h5")
    known = Attributes()
    for number in range(3):
        with h5py.File(path, "w") as file:
            file.attrs["a"] = number
        assert known.of(path, "@a") == max(number - 1, 0)
        assert known.learn(path, "@a") == number
    assert known.of(path, "@a") == 2
