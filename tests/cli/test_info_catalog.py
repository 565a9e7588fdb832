"""``voxload info`` of a catalogue whose samples share stored volumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from voxload.cli.main import run
from voxload.convert import ConvertOptions, Hints, Packing, convert


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a converted cube of (16, 16, 32) voxels, cut into eight samples of (8, 8, 16)."""
    folder = tmp_path_factory.mktemp("info")
    np.save(folder / "x.npy", np.arange(16 * 16 * 32, dtype="<i4").reshape(16, 16, 32))
    convert(folder / "x.npy", folder / "out", options=ConvertOptions(split=(8, 8, 16), checksums=True))
    return folder / "out"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.long
def test_samples_and_volumes_are_told_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight samples of one stored volume are eight samples and one volume, whose checksums count once."""
    found = _json(["info", str(folder)], capsys)
    assert (found["samples"], found["volumes"], found["windows"]) == (8, 1, 8)
    assert (found["universes"], found["checksums"], found["shapes"]) == (1, 1, [[1, 8, 8, 16]])
    assert run(["info", str(folder)]) == 0
    assert "of every chunk" in capsys.readouterr().out


def test_a_window_is_shown_as_the_sample(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sample in a shared volume has its own extents, its place, and a share of what is stored."""
    call = ["info", str(folder), "--sample", "x_1_0_1"]
    found = _json(call, capsys)
    assert (found["sample"], found["universe"], found["origin"]) == ("x_1_0_1", "x", [8, 0, 16])
    assert found["shape"] == [1, 8, 8, 16]
    assert found["window"] == {"start": [8, 0, 16], "stop": [16, 8, 32]}
    assert found["decoded_bytes"] == 8 * 8 * 16 * 4
    assert run(call) == 0
    text = capsys.readouterr().out
    assert "[8:16, 0:8, 16:32]" in text
    assert "mean" in text


def test_ranks_of_a_window(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks share the sample and not the volume that it is stored in."""
    ranks = _json(["info", str(folder), "--sample", "x_0_0_0", "--spatial", "1,1,2"], capsys)["ranks"]
    assert [(rank["start"], rank["stop"]) for rank in ranks] == [([0, 0, 0], [8, 8, 8]), ([0, 0, 8], [8, 8, 16])]


@pytest.mark.long
def test_a_picture_of_a_window(folder: Path, tmp_path: Path) -> None:
    """--plot draws the sample that is named."""
    assert run(["info", str(folder), "--sample", "x_1_1_1", "--plot", str(tmp_path / "p.png")]) == 0
    assert imread(tmp_path / "p.png").std() > 0.1


def test_one_sample_must_be_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture of one of several samples is not drawn of any; an unknown one is refused with those there are."""
    assert run(["info", str(folder), "--plot", str(tmp_path / "p.png")]) == 2
    assert "name one with --sample" in capsys.readouterr().err
    assert run(["info", str(folder), "--sample", "y"]) == 2
    assert "x_0_0_0" in capsys.readouterr().err
    assert not (tmp_path / "p.png").exists()


def test_a_packed_file_is_shown_as_a_sample_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six small samples in one file are six samples, not one volume of six times their depth, for ranks too."""
    for index in range(6):
        np.save(tmp_path / f"u{index}.npy", np.full((1, 8, 8, 8), index, np.int16))
    convert(tmp_path, tmp_path / "out", options=ConvertOptions(pack=Packing.ALWAYS, hints=Hints("CDHW")))
    (packed,) = map(str, (tmp_path / "out").glob("*.zarr"))
    found = _json(["info", packed, "--spatial", "2,1,1"], capsys)
    assert (found["shape"], found["sample"], found["packed_samples"]) == ([1, 8, 8, 8], "u0", 6)
    assert [rank["stop"] for rank in found["ranks"]] == [[4, 8, 8], [8, 8, 8]]
    assert _json(["info", packed, "--sample", "u3"], capsys)["window"] == {"start": [24, 0, 0], "stop": [32, 8, 8]}
    assert run(["info", packed]) == 0
    assert "u0, of 6 packed into 48 x 8 x 8" in " ".join(capsys.readouterr().out.split())
    assert run(["info", packed, "--sample", "u9"]) == 2
    assert "found no sample 'u9', expected one of ['u0'" in capsys.readouterr().err
