"""Data sets of shards: what WebDataset's own package reads, in any order, on any grid, from tiers, by a catalogue."""

from __future__ import annotations

import gc
import json
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset

import voxload
from tests.readers.shards import archives
from tests.support.settled import settle
from voxload.catalog import Catalog
from voxload.catalog.shards import list_shards
from voxload.cli.main import run
from voxload.errors import DataError, UsageError
from voxload.grid import ProcessGrid

SHARDS, EACH = 3, 5


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of archives of birds."""
    folder = tmp_path_factory.mktemp("birds")
    for number in range(SHARDS):
        archives.birds(folder / f"s-{number:06}.tar", range(number * EACH, (number + 1) * EACH))
    settle(folder)
    return folder


def _theirs(shards: Path) -> list[tuple[np.ndarray[Any, Any], float]]:
    """Return pictures and classes in the order in which WebDataset has them."""
    names = str(shards / f"s-{{000000..{SHARDS - 1:06}}}.tar")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the collector
        reading = webdataset.WebDataset(names, shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls")
        found = [(np.asarray(picture), float(number)) for picture, number in reading]
        del reading
        gc.collect()
    return found


def _picture(volume: torch.Tensor) -> np.ndarray[Any, Any]:
    return volume[:, 0].permute(1, 2, 0).numpy()


def test_samples_are_those_of_webdataset(shards: Path) -> None:
    """Keys, pixels and classes, of the archives themselves and of a catalogue of them."""
    meant = _theirs(shards)
    assert run(["catalog", "shards", str(shards), *map(str, sorted(shards.glob("*.tar"))), "--members", "jpg"]) == 0
    plain = voxload.VolumeDataset(str(shards / "*.tar"), fields={"x": "jpg"}, targets="cls")
    listed = voxload.VolumeDataset(shards, targets="cls")
    assert len(meant) == len(plain) == len(listed) == SHARDS * EACH
    assert list(plain.sample_ids) == list(listed.sample_ids)
    assert plain.sample_ids[EACH] == f"s-000001/birds/{EACH:04}"
    for data in (plain, listed):
        for (volume, target), (picture, number) in zip((data[index] for index in range(len(data))), meant, strict=True):
            assert np.array_equal(_picture(volume), picture)
            assert target.tolist() == [number]
        data.close()


@pytest.mark.parametrize("words", [{}, {"cache": voxload.Cache(memory="8MiB")}, {"readers": "process"}], ids=str)
def test_loaders_give_them_in_torchs_order(shards: Path, words: dict[str, Any]) -> None:
    """Pictures and masks side by side, read ahead, kept in memory, or read by a process of its own."""
    data = voxload.VolumeDataset(
        str(shards / "*.tar"), fields={"x": "jpg", "mask": "seg.png"}, targets=["cls", "height"]
    )
    torch.manual_seed(2)
    order = [list(torch.utils.data.RandomSampler(range(len(data)))) for _ in range(3)]
    torch.manual_seed(2)
    with closing(voxload.DataLoader(data, 4, shuffle=True, **words)) as loader:
        for _ in order:
            count = 0
            for pictures, masks, targets in loader:
                for volume, mask, (number, height) in zip(pictures, masks, targets.tolist(), strict=True):
                    known = round(4 * height)
                    assert known % 5 == number
                    assert np.array_equal(
                        _picture(volume), archives.shown(archives.jpeg(archives.pixels(known), quality=90))
                    )
                    assert np.array_equal(mask[0, 0].numpy(), archives.pixels(known, "L"))
                    count += 1
            assert count == len(data)
    data.close()


def test_clips_are_volumes_whose_blocks_have_time(tmp_path: Path) -> None:
    """A rank has some frames of some rows, with a halo, or windows in time where the axis is named so."""
    clips = {f"{number}.mkv": archives.clip(archives.frames(number)) for number in (1, 2)}
    shard = archives.archive(tmp_path / "s.tar", clips)
    whole = archives.frames(2)
    for rank in range(4):
        grid = ProcessGrid(spatial=(2, 2, 1), world_size=4, rank=rank)
        data = voxload.VolumeDataset(shard, grid=grid, halo=(1, 0, 0))
        block, box = data[1][0].numpy(), data.box((archives.FRAMES, archives.HEIGHT, archives.WIDTH))
        low, high = max(box.start[0], 0), min(box.stop[0], archives.FRAMES)
        inner = block[:, low - box.start[0] : high - box.start[0]]
        assert np.array_equal(inner.transpose(1, 2, 3, 0), whole[low:high, box.start[1] : box.stop[1]])
        data.close()
    series = voxload.VolumeDataset(shard, axes="THWC", window=voxload.Window(2, stride=2))
    assert len(series) == 2 * 3
    assert np.array_equal(series[4][0][:, :, 0].numpy().transpose(0, 2, 3, 1), whole[2:4])
    series.close()


def test_catalogues_of_shards(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows have places, extents and labels; what does not fit is refused before anything is written."""
    paths = sorted(shards.glob("*.tar"))
    found = list_shards(paths, tmp_path, targets=("height", "cls"))
    assert isinstance(found, Catalog)
    assert (found.datasets, found.target_names) == (("jpg", "seg.png"), ("height", "cls"))
    row = found.entry(f"s-000002/birds/{2 * EACH:04}", "seg.png")
    assert (row.shape, row.dtype, row.axes) == ((archives.HEIGHT, archives.WIDTH), "|u1", "HW")
    assert dict(row.targets) == {"height": 2 * EACH / 4, "cls": 0.0}
    out = str(tmp_path / "catalog.parquet")
    assert run(["catalog", "shards", out, *map(str, paths), "--targets", "place"]) == 1
    assert "found 2 numbers, expected one" in capsys.readouterr().err
    assert run(["catalog", "shards", out, *map(str, paths), "--members", "png"]) == 1
    assert "no member 'png'" in capsys.readouterr().err
    assert run(["catalog", "shards", out, str(shards)]) == 2
    assert "files that end in .tar" in capsys.readouterr().err
    assert not Path(out).exists()
    assert run(["catalog", "shards", out, *map(str, paths), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == SHARDS * EACH
    with pytest.raises(UsageError, match=r"allow"):
        Catalog.read(out)  # its archives are not below its folder


def test_info_tells_of_members(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the name of a sample; of an archive it says what to do."""
    shard = min(shards.glob("*.tar"))
    assert run(["info", f"{shard}/birds/0001", "--dataset", "seg.png", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [1, 1, archives.HEIGHT, archives.WIDTH]
    assert run(["info", str(shard)]) == 2
    assert "voxload catalog shards catalog.parquet" in capsys.readouterr().err


def test_an_archive_that_was_written_anew_is_found_out(tmp_path: Path) -> None:
    """Its catalogue does not lead to other samples."""
    archives.birds(tmp_path / "s.tar", range(4))
    assert run(["catalog", "shards", str(tmp_path), str(tmp_path / "s.tar")]) == 0
    archives.birds(tmp_path / "s.tar", (3, 2, 1, 0))
    data = voxload.VolumeDataset(tmp_path, fields={"x": "jpg"})
    with pytest.raises(DataError, match=r"the archive was written anew"):
        data[0]
    data.close()
