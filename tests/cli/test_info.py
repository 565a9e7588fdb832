"""``voxload info``: what it says agrees with the file, for programs and for people."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib.image import imread

from tests.support import processes
from voxload.cli.main import run
from voxload.convert import convert

LOADED = """
import sys
from voxload.cli.main import run
for more in ([], sys.argv[3:]):
    assert run([*sys.argv[1:3], *more]) == 0
    print("loaded", *sorted({"matplotlib", "torch"} & sys.modules.keys()))
"""


@pytest.fixture(scope="module")
def universe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a raw universe of 32^3 x 4 and its conversion."""
    folder = tmp_path_factory.mktemp("info")
    (folder / "raw").mkdir()
    with h5py.File(folder / "raw" / "u.hdf5", "w") as file:
        file["full"] = np.random.default_rng(0).integers(0, 50, (32, 32, 32, 4)).astype("<i2")
        file["unitPar"] = np.linspace(-1, 1, 4)
    convert(folder / "raw", folder / "converted")
    return folder


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_raw_universe_is_recognised(universe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The axes of the raw layout are known; contiguous storage has no chunks."""
    found = _json(["info", str(universe / "raw" / "u.hdf5")], capsys)
    assert found["axes"] == "DHWC"
    assert found["shape"] == [4, 32, 32, 32]
    assert found["chunks"] is None
    assert found["stored_bytes"] == found["decoded_bytes"] == 4 * 32**3 * 2


def test_ranks_share_the_stored_bytes(universe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The octants of a converted cube are whole chunks: together they read what is stored, once."""
    found = _json(["info", str(universe / "converted" / "u.zarr"), "--spatial", "2,2,2"], capsys)
    ranks = found["ranks"]
    assert [rank["chunks"] for rank in ranks] == [1] * 8
    assert {rank["decode_amplification"] for rank in ranks} == {1.0}
    # Each rank reads the shard's index besides its chunks: 8 entries of 16 bytes and a checksum.
    index = 8 * 16 + 4
    assert sum(rank["bytes_read"] - index for rank in ranks) == found["stored_bytes"] - index
    for rank in ranks:
        assert rank["bytes_read"] <= found["stored_bytes"] / 8 * 1.01 + index


def test_a_halo_costs_neighbouring_chunks(universe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a halo every octant touches all eight chunks, and the table says so."""
    call = ["info", str(universe / "converted" / "u.zarr"), "--spatial", "2,2,2", "--halo", "1"]
    ranks = _json(call, capsys)["ranks"]
    assert [rank["chunks"] for rank in ranks] == [8] * 8
    assert ranks[0]["start"] == [-1, -1, -1]
    assert ranks[0]["decode_amplification"] == pytest.approx(32**3 / 18**3)
    assert run(call) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("[-1:17, -1:17, -1:17]" in line for line in lines)


def test_chunks_are_advised_only_where_they_are_better(universe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that has the best chunks for a grid is left as it is; one chunk for all ranks could be cut."""
    call = ["info", str(universe / "converted" / "u.zarr")]
    assert run([*call, "--spatial", "2,2,2", "--halo", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "decoded; no chunks would do with less." in printed
    assert "--chunks" not in printed
    assert run([*call, "--spatial", "4,1,1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Over all ranks 2.000 of what is needed is decoded; with chunks 8,32,32 it would be 1.000" in printed


def test_what_files_are_called_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets in a name are no markup, and get no strokes."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["rho[bold]"] = np.zeros((4, 4, 4), np.int16)
    assert run(["info", str(tmp_path / "a.h5"), "--dataset", "rho[bold]"]) == 0
    assert "HDF5, dataset rho[bold] " in capsys.readouterr().out


def test_a_catalogue_is_summarised(universe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with a catalogue shows samples and targets."""
    found = _json(["info", str(universe / "converted")], capsys)
    assert found["samples"] == 1
    assert found["targets"] == ["omega_m", "sigma_8", "n_spec", "h_0"]
    assert found["shapes"] == [[4, 32, 32, 32]]


def test_headerless_files_need_shape_and_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Raw binary is described by what the caller says of it."""
    np.zeros((4, 5, 6), "<f4").tofile(tmp_path / "x.raw")
    found = _json(["info", str(tmp_path / "x.raw"), "--shape", "4,5,6", "--dtype", "<f4"], capsys)
    assert found["shape"] == [1, 4, 5, 6]
    assert run(["info", str(tmp_path / "x.raw"), "--shape", "4,5,7", "--dtype", "<f4"]) == 1
    assert "found 480 bytes, expected 560" in capsys.readouterr().err


@pytest.mark.long
def test_a_picture_is_drawn(universe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--plot writes a picture with three panels that are not empty."""
    picture = tmp_path / "slices.png"
    assert run(["info", str(universe / "converted" / "u.zarr"), "--plot", str(picture)]) == 0
    assert "Zarr v3" in capsys.readouterr().out
    pixels = imread(picture)
    assert pixels.shape[1] > 2 * pixels.shape[0]
    thirds = np.array_split(pixels[..., :3], 3, axis=1)
    assert all(third.std() > 0.1 for third in thirds)


@pytest.mark.long
def test_only_a_picture_waits_for_what_draws(universe: Path, tmp_path: Path) -> None:
    """What draws takes a second: it is loaded with --plot and not before; torch is not loaded at all."""
    call = ["info", str(universe / "converted" / "u.zarr"), "--plot", str(tmp_path / "p.png")]
    done = processes.run([sys.executable, "-c", LOADED, *call], capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("loaded")] == ["loaded", "loaded matplotlib"]
