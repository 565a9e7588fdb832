"""Storage that refuses while a conversion writes: one clear line, and nothing under a final name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import processes, scripts
from tests.support.openfiles import open_files
from voxload.convert import ConvertOptions, StoredFormat, convert
from voxload.convert.write.lock import LOCK_NAME
from voxload.errors import StorageError

LIMITED = """
import resource, sys
from voxload.convert import ConvertOptions, StoredFormat, convert
from voxload.errors import StorageError
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    convert(sys.argv[1], sys.argv[2], options=ConvertOptions(format=StoredFormat(sys.argv[3])))
except StorageError as error:
    print(error)
    sys.exit(3)
"""
"""A conversion that may write no file above 1 MiB."""


def _mount(*arguments: str) -> str:
    """Run mount and return what it complains of."""
    command = shutil.which("mount")
    if command is None:
        return "there is no mount command"
    done = processes.run([command, *arguments], check=False, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a real file system of 2 MiB in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    complaint = _mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    if complaint:
        pytest.skip(f"a small file system cannot be mounted here: {complaint.strip()}")
    try:
        yield folder
    finally:
        processes.run([shutil.which("umount") or "umount", str(folder)], check=True)


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """Give a source of 4 MiB that no codec makes smaller."""
    path = tmp_path / "noise.npy"
    np.save(path, np.random.default_rng(0).integers(-(2**15), 2**15, (128, 128, 128), dtype="i2"))
    return path


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("stored", list(StoredFormat))
def test_full_disk(
    small_disk: Path, noise: Path, stored: StoredFormat, *, visible: Callable[[Path], list[str]], converted: Any
) -> None:
    """A full disk ends the conversion with its own words; with more room the next run completes it."""
    out = small_disk / "out"
    before = open_files()
    with pytest.raises(StorageError, match=r"No space left on device.*run the same command again") as caught:
        convert(noise, out, options=ConvertOptions(format=stored))
    assert "\n" not in str(caught.value)
    assert not [name for name in visible(out) if not name.startswith(".")]
    assert not open_files() - before
    assert _mount("-o", "remount,size=16m", str(small_disk)) == ""
    report = convert(noise, out, options=ConvertOptions(format=stored))
    assert visible(out) == ["catalog.parquet", f"noise{stored.suffix}"]
    np.testing.assert_array_equal(converted(report.catalog, "noise")[0], np.load(noise))


@pytest.mark.parametrize("stored", list(StoredFormat))
def test_file_size_limit(tmp_path: Path, noise: Path, stored: StoredFormat, *, visible: Any) -> None:
    """A quota in the way of one file is reported the same way, from a process that ends cleanly."""
    out = tmp_path / "out"
    done = scripts.run(LIMITED, noise, out, stored.value, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith(f"writing {out}/noise{stored.suffix}: found File too large; ")
    assert done.stderr == ""
    assert not [name for name in visible(out) if not name.startswith(".")]


def test_earlier_samples_survive_a_full_disk(small_disk: Path, noise: Path, tmp_path: Path, visible: Any) -> None:
    """Samples that were complete before the disk was full are complete after it."""
    raw = tmp_path / "raw"
    raw.mkdir()
    np.save(raw / "a.npy", np.zeros((16, 16, 16), dtype="i2"))
    noise.rename(raw / "b.npy")
    with pytest.raises(StorageError, match="No space left"):
        convert(raw, small_disk / "out")
    assert [name for name in visible(small_disk / "out") if not name.startswith(".")] == ["a.zarr"]


def test_folder_that_cannot_be_made(tmp_path: Path, noise: Path) -> None:
    """A destination below a file is reported as the storage's refusal."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="Not a directory"):
        convert(noise, tmp_path / "file/out")
    assert not (tmp_path / LOCK_NAME).exists()
