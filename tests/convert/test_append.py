"""Conversions that append: samples of many sources in one catalogue, complete before anybody sees them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support import processes
from voxload.catalog import Catalog
from voxload.catalog.generations import generation_of
from voxload.cli.main import run
from voxload.convert import ConvertOptions, Share, convert, convert_and_append
from voxload.data.dataset import VolumeDataset
from voxload.errors import DataError, UsageError


def _source(folder: Path, name: str, seed: int) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    volume = np.random.default_rng(seed).integers(0, 99, (4, 6, 5)).astype("<i2")
    np.save(folder / f"{name}.npy", volume)
    return volume


def test_sources_become_samples_of_one_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, at once, and again; voxels are those of the sources, checksums included."""
    volumes = {f"u{number}": _source(tmp_path / f"sim{number}", f"u{number}", number) for number in range(6)}
    target = tmp_path / "universes"
    first = convert_and_append(tmp_path / "sim0", target, options=ConvertOptions(checksums=True))
    assert (first.generation, first.catalog) == (1, target / "catalog.parquet")
    with ThreadPoolExecutor(3) as pool:
        words = ConvertOptions(checksums=True)
        calls = [
            pool.submit(convert_and_append, tmp_path / f"sim{number}", target, options=words) for number in (1, 2, 3)
        ]
        assert {call.result(timeout=processes.LIMIT).generation for call in calls} == {2, 3, 4}
    again = convert_and_append(tmp_path / "sim2", target, options=ConvertOptions(checksums=True))
    assert (again.generation, again.converted, again.skipped) == (4, (), ("u2",))
    assert run(["convert", str(tmp_path / "sim4" / "u4.npy"), str(target), "--append", "--checksums"]) == 0
    assert "generation" in capsys.readouterr().out
    found = Catalog.read(target)
    assert (generation_of(found), found.samples) == (5, ("u0", "u1", "u2", "u3", "u4"))
    with closing(VolumeDataset(target)) as data:
        for sample, (volume,) in zip(data.sample_ids, (data[index] for index in range(len(data))), strict=True):
            assert np.array_equal(volume[0], volumes[sample])


def test_what_cannot_be_appended_is_refused(tmp_path: Path) -> None:
    """A catalogue of a plain conversion, a plain conversion into one that grows, a share, and another truth."""
    _source(tmp_path / "sim0", "u0", 0)
    _source(tmp_path / "sim1", "u1", 1)
    convert(tmp_path / "sim0", tmp_path / "plain")
    with pytest.raises(UsageError, match="without --append wrote"):
        convert_and_append(tmp_path / "sim1", tmp_path / "plain")
    convert_and_append(tmp_path / "sim0", tmp_path / "grown")
    with pytest.raises(UsageError, match="say --append"):
        convert(tmp_path / "sim1", tmp_path / "grown")
    with pytest.raises(UsageError, match="leave --tasks out"):
        convert_and_append(tmp_path / "sim1", tmp_path / "grown", options=ConvertOptions(share=Share(0, 2)))
    _source(tmp_path / "other", "u0", 7)
    with pytest.raises(DataError, match="sample 'u0'"):
        convert_and_append(tmp_path / "other", tmp_path / "grown")
    assert Catalog.read(tmp_path / "grown").samples == ("u0",)


def test_tasks_of_an_array_append_each_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's variables do not make a source of one task a share of it."""
    for number in range(2):
        _source(tmp_path / f"sim{number}", f"u{number}", number)
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(number))
        monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "2")
        assert run(["convert", str(tmp_path / f"sim{number}"), str(tmp_path / "out"), "--append"]) == 0
    assert Catalog.read(tmp_path / "out").samples == ("u0", "u1")
