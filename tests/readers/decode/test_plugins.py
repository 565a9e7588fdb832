"""Plugins of libhdf5: refused unless allowed by name, and nothing that they do reaches the process that reads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from voxload.errors import DataError, UsageError
from voxload.readers import Location, open_reader
from voxload.readers.decode import plugins

hdf5plugin = pytest.importorskip("hdf5plugin")
VALUES = np.random.default_rng(0).normal(size=(8, 8, 8)).astype("<f4").cumsum(0)
OPTIONS: dict[str, Any] = {
    "zfp": hdf5plugin.Zfp(accuracy=1e-3),
    "sz": hdf5plugin.SZ(absolute=1e-3),
    "sz3": hdf5plugin.SZ3(absolute=1e-3),
    "sperr": hdf5plugin.Sperr(rate=8),
}


@pytest.fixture(autouse=True)
def own_helper(no_leaks: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Helper]:
    """Give a process of plugins to this test alone, and end it before leaks are looked for."""
    del no_leaks
    helper = plugins.Helper()
    monkeypatch.setattr(plugins, "_helper", helper)
    yield helper
    helper.close()


def write(path: Path, name: str) -> npt.NDArray[Any]:
    """Write the values, and return what libhdf5 makes of them."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(4, 4, 4), **OPTIONS[name])
    with h5py.File(path) as file:
        found: npt.NDArray[Any] = file["x"][()]
        return found


def read(path: Path) -> npt.NDArray[Any]:
    """Return the voxels."""
    with closing(open_reader(Location(str(path), "x", axes="DHW"))) as reader:
        info = reader.describe()
        out = np.empty(info.shape, info.native_dtype)
        reader.read_into(info.whole, out)
        found: npt.NDArray[Any] = out[0]
        return found


@pytest.mark.parametrize("name", OPTIONS)
def test_a_plugin_runs_only_when_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The error says how; another plugin's name does not do; then the voxels are libhdf5's, from many threads."""
    expected = write(tmp_path / "x.h5", name)
    other = next(other for other in OPTIONS if other != name)
    for value in ("", other):
        monkeypatch.setenv(plugins.ALLOWED, value)
        with pytest.raises(UsageError, match=rf"\({name}\).*set {plugins.ALLOWED}={name}"):
            read(tmp_path / "x.h5")
    monkeypatch.setenv(plugins.ALLOWED, f"{other}, {name.upper()}")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(read, [tmp_path / "x.h5"] * 8):
            assert found.tobytes() == expected.tobytes()


def test_a_plugin_that_there_is_not_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip of the pen is no permission."""
    write(tmp_path / "x.h5", "zfp")
    monkeypatch.setenv(plugins.ALLOWED, "zpf")
    with pytest.raises(UsageError, match=r"found zpf, expected some of zfp"):
        read(tmp_path / "x.h5")


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_damage_is_an_error_or_voxels_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Cuts and noise end some plugins: the process that reads goes on, and reads sound data afterwards."""
    expected = write(tmp_path / "sound.h5", name)
    monkeypatch.setenv(plugins.ALLOWED, name)
    write(tmp_path / "x.h5", name)
    with h5py.File(tmp_path / "x.h5") as file:
        sound = file["x"].id.read_direct_chunk((0, 0, 0))[1]
    rng = np.random.default_rng(1)
    for stored in (sound[:1], sound[: len(sound) // 2], rng.bytes(len(sound)), b"\xff" * len(sound)):
        with h5py.File(tmp_path / "x.h5", "r+") as file:
            file["x"].id.write_direct_chunk((0, 0, 0), stored)
        try:
            assert read(tmp_path / "x.h5").shape == VALUES.shape
        except DataError as error:
            assert "chunk (0, 0, 0)" in str(error)  # noqa: PT017 - either outcome is right
    assert read(tmp_path / "sound.h5").tobytes() == expected.tobytes()


def test_a_plugin_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_helper: plugins.Helper
) -> None:
    """Past its time the process is killed, and the next chunk has a new one."""
    expected = write(tmp_path / "x.h5", "zfp")
    monkeypatch.setenv(plugins.ALLOWED, "zfp")
    read(tmp_path / "x.h5")
    process = own_helper._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)  # as if it ran for ever
    monkeypatch.setattr(plugins, "SECONDS", 0.0)
    with pytest.raises(DataError, match=r"chunk \(\d, \d, \d\): found plugin zfp that ran longer"):
        read(tmp_path / "x.h5")
    assert process.returncode == -signal.SIGKILL
    monkeypatch.undo()
    monkeypatch.setattr(plugins, "_helper", own_helper)
    monkeypatch.setenv(plugins.ALLOWED, "zfp")
    assert read(tmp_path / "x.h5").tobytes() == expected.tobytes()


def test_a_plugin_that_ends_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_helper: plugins.Helper
) -> None:
    """Killed between two chunks, by whomever, it is missed by nobody."""
    expected = write(tmp_path / "x.h5", "zfp")
    monkeypatch.setenv(plugins.ALLOWED, "zfp")
    read(tmp_path / "x.h5")
    process = own_helper._process
    assert process is not None
    process.kill()
    process.wait()
    assert read(tmp_path / "x.h5").tobytes() == expected.tobytes()
