"""Spacing in ``voxload info`` and ``voxload catalog list``, and pictures in the proportions of the voxels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel
import numpy as np
import pytest
import zarr

from voxload.cli.inspect import planes as info_planes
from voxload.cli.inspect.stored import Ranks, plot_volume
from voxload.cli.main import run
from voxload.convert import ConvertOptions, convert
from voxload.geometry import Boundary, Halo
from voxload.readers import Location, open_reader
from voxload.readers.protocol import Window

if TYPE_CHECKING:  # drawing is what imports it
    from matplotlib.figure import Figure

nib: Any = nibabel
AFFINE = np.array([[0, 0, 4.0, 1], [0, 2.0, 0, 2], [0.5, 0, 0, 3], [0, 0, 0, 1]])
"""Of (w, h, d): voxels of 4 x 2 x 0.5 mm."""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Return an image of (D, H, W) = (6, 8, 10) voxels."""
    voxels = np.arange(480, dtype="<i2").reshape(6, 8, 10)
    nib.save(nib.Nifti1Image(voxels.T, AFFINE), tmp_path / "a.nii")
    return tmp_path / "a.nii"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_it_is_shown(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the raw file, the stored volume and the sample of a catalogue, to people and as JSON."""
    convert(image, tmp_path / "out")
    (cube,) = _json(["info", str(image)], capsys)["cubes"]
    row = _json(["info", str(tmp_path / "out"), "--sample", "a"], capsys)
    stored = _json(["info", str(tmp_path / "out" / "a.zarr")], capsys)
    assert cube["spacing"] == row["spacing"] == stored["spacing"] == [4.0, 2.0, 0.5]
    assert cube["affine"] == row["affine"] == AFFINE[:, [2, 1, 0, 3]].ravel().tolist()
    for call in (["info", str(image)], ["info", str(tmp_path / "out"), "--sample", "a"], ["info", stored["path"]]):
        assert run(call) == 0
        assert "4 x 2 x 0.5 mm" in capsys.readouterr().out
    assert run(["catalog", "list", str(tmp_path / "out")]) == 0
    assert "4,2,0.5" in capsys.readouterr().out
    (line,) = _json(["catalog", "list", str(tmp_path / "out"), "--where", "spacing == [4, 2, 0.5]"], capsys)["rows"]
    assert line["spacing"] == [4.0, 2.0, 0.5]
    assert _json(["catalog", "list", str(tmp_path / "out"), "--where", "spacing == null"], capsys)["rows"] == []


def test_it_is_left_out_where_nothing_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No empty column, and nulls in JSON."""
    np.save(tmp_path / "x.npy", np.zeros((4, 4, 4), "<i2"))
    convert(tmp_path / "x.npy", tmp_path / "out")
    assert _json(["info", str(tmp_path / "out"), "--sample", "x"], capsys)["spacing"] is None
    assert _json(["info", str(tmp_path / "out" / "x.zarr")], capsys)["spacing"] is None
    for call in (["info", str(tmp_path / "out"), "--sample", "x"], ["catalog", "list", str(tmp_path / "out")]):
        assert run(call) == 0
        assert "spacing" not in capsys.readouterr().out


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return a list that the figures go to instead of files."""
    found: list[Figure] = []
    monkeypatch.setattr(info_planes, "write_png", lambda figure, _: found.append(figure))
    return found


def test_pictures_have_the_proportions_of_the_voxels(image: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    """A row of the plane normal to D is H's edge high and W's wide, and so on, whatever the picture is of."""
    options = ConvertOptions(split=(3, 4, 5))
    convert(image, tmp_path / "out", options=options)
    picture = ["--plot", str(tmp_path / "p.png")]
    assert run(["info", str(image), *picture]) == 0
    assert run(["info", str(tmp_path / "out"), "--sample", "a_0_0_0", *picture]) == 0
    assert run(["info", str(tmp_path / "out" / "a.zarr"), *picture]) == 0
    for figure in drawn:
        aspects = [panel.get_aspect() for panel in figure.axes[:3]]
        assert aspects == pytest.approx([2.0 / 0.5, 4.0 / 0.5, 4.0 / 2.0])
        assert "Voxels of 4 x 2 x 0.5 mm." in figure.get_supxlabel()
    assert len(drawn) == 3


def test_thinned_planes_keep_their_proportions(tmp_path: Path, drawn: list[Figure]) -> None:
    """Where of W every other voxel is shown, one shown stands for two, and axes count voxels of the volume."""
    np.save(tmp_path / "long.npy", np.zeros((200, 200, 2000), "<i2"))
    assert run(["info", str(tmp_path / "long.npy"), "--plot", str(tmp_path / "p.png")]) == 0
    (figure,) = drawn
    assert [panel.get_aspect() for panel in figure.axes[:3]] == [1.0, 1.0, 1.0]
    assert [panel.get_xlim() for panel in figure.axes[:3]] == [(-0.5, 1999.5), (-0.5, 1999.5), (-0.5, 199.5)]
    first: Any = figure.axes[0].images[0]
    assert first.get_array().shape == (200, 1000)
    assert "Not every voxel is drawn." in figure.get_supxlabel()


def _constant(lines: Iterable[Any], axis: str) -> set[float]:
    """Return where lines lie that are straight along the other axis."""
    places = [set(getattr(line, f"get_{axis}data")()) for line in lines]
    return {float(*place) for place in places if len(place) == 1}


def test_blocks_halos_and_chunks_are_drawn(tmp_path: Path, drawn: list[Figure]) -> None:
    """The lines of ranks where --spatial puts them, those of chunks where the file has them, in one picture."""
    store: Any = zarr.create_array(tmp_path / "a.zarr", shape=(8, 10, 12), chunks=(8, 4, 5), dtype="<i2")
    store[:] = np.arange(960).reshape(8, 10, 12)
    call = ["info", str(tmp_path / "a.zarr"), "--plot", str(tmp_path / "p.png")]
    assert run(call) == 0
    assert run([*call, "--spatial", "1,2,3", "--halo", "1"]) == 0
    for figure, is_cut in zip(drawn, (False, True), strict=True):
        normal_d = figure.axes[0]
        assert _constant(normal_d.lines, "x") == {4.5, 9.5} | ({3.5, 7.5} if is_cut else set())
        assert len(normal_d.patches) == (3 if is_cut else 0)
        assert "Dotted: chunks of 8 x 4 x 5 voxels." in figure.get_supxlabel()
        assert ("Lines: 1 x 2 x 3 blocks" in figure.get_supxlabel()) is is_cut
        assert len(figure.axes) == 4


def test_chunks_of_a_window_lie_where_they_are_stored(tmp_path: Path, drawn: list[Figure]) -> None:
    """A sample that begins within a chunk: its first bound is nearer than a chunk."""
    store: Any = zarr.create_array(tmp_path / "a.zarr", shape=(8, 10, 12), chunks=(4, 10, 12), dtype="<i2")
    store[:] = 1
    reader = open_reader(Location(str(tmp_path / "a.zarr"), window=Window((3, 0, 0), (4, 10, 12))))
    plot_volume(reader, tmp_path / "p.png", Ranks("", Halo.parse(0), Boundary.ZERO))
    reader.close()
    (figure,) = drawn
    assert _constant(figure.axes[1].lines, "y") == {0.5}
