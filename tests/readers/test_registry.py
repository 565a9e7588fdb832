"""The registry: formats are found by looking at the data, and others can register theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest
import zarr

from tests.support import processes
from voxload.errors import UsageError
from voxload.readers import Location, Missing, find_format, open_reader, registry
from voxload.readers.flat.formats import NpyFormat, RawFormat

pytestmark = pytest.mark.usefixtures("no_leaks")


class TailFormat(NpyFormat):
    """Somebody else's format: npy under another suffix."""

    name = "tail"

    def claims(self, path: str) -> bool:
        """Claim files whose names end in .tail."""
        return path.endswith(".tail")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register TailFormat as an installed package does."""
    point = EntryPoint("tail", f"{__name__}:TailFormat", registry.ENTRY_POINTS)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _module())
    monkeypatch.setattr(registry, "_INSTALLED", (point,))
    registry.formats.cache_clear()
    yield
    registry.formats.cache_clear()


def _module() -> ModuleType:
    module = ModuleType(__name__)
    vars(module)["TailFormat"] = TailFormat
    return module


def test_the_data_say_what_they_are(tmp_path: Path) -> None:
    """Names and suffixes do not count: an HDF5 file may be called .npy."""
    with h5py.File(tmp_path / "a.npy", "w") as file:
        file["x"] = np.zeros((2, 2, 2))
    with (tmp_path / "b.h5").open("wb") as plain:
        np.save(plain, np.zeros((2, 2, 2)))
    zarr.create_array(tmp_path / "c.raw", data=np.zeros((2, 2, 2)))
    (tmp_path / "d").write_bytes(bytes(8))
    found = [find_format(str(tmp_path / name)).name for name in ("a.npy", "b.h5", "c.raw", "d")]
    assert found == ["HDF5", "npy", "Zarr", "raw"]
    for name in ("b.h5", "d"):
        path = str(tmp_path / name)
        assert find_format(path).datasets(path) == ("",)
        with pytest.raises(UsageError, match="keep the targets in a catalogue"):
            find_format(path).read_vector(path, "unitPar")


@pytest.mark.usefixtures("installed")
def test_installed_formats_come_first(tmp_path: Path) -> None:
    """A format that another package registers is asked before ours."""
    with (tmp_path / "x.tail").open("wb") as file:
        np.save(file, np.zeros((2, 2, 2)))
    assert find_format(str(tmp_path / "x.tail")).name == "tail"
    reader = open_reader(Location(str(tmp_path / "x.tail")))
    assert reader.describe().format == "tail"
    reader.close()


def test_raw_claims_files_only(tmp_path: Path) -> None:
    """Anything can be headerless data, but a folder cannot."""
    (tmp_path / "x").write_bytes(b"")
    assert RawFormat().claims(str(tmp_path / "x"))
    assert not RawFormat().claims(str(tmp_path))


def test_policies_are_words(tmp_path: Path) -> None:
    """The string and the member mean the same."""
    np.save(tmp_path / "x.npy", np.zeros((2, 2, 2)))
    for missing in ("error", "fill", Missing.ERROR, Missing.FILL):
        open_reader(Location(str(tmp_path / "x.npy")), missing=missing).close()


@pytest.mark.long
def test_an_import_is_light(tmp_path: Path) -> None:
    """Reading a file imports no torch, nor what other formats and URLs need: each rank would wait for it."""
    np.save(tmp_path / "x.npy", np.zeros((2, 2, 2)))
    script = (
        "import sys; from voxload.readers import Location, open_reader\n"
        "open_reader(Location(sys.argv[1])).describe()\n"
        "print({'torch', 'zarr', 'aiohttp', 'obstore'} & sys.modules.keys() or 'none')"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "x.npy")]
    child = processes.run(words, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "none"
