"""Spacing in ``voxload info`` and ``voxload catalog list``, and pictures in the proportions of the voxels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel
import numpy as np
import pytest

from voxload.cli.main import run
from voxload.convert import ConvertOptions, convert
from voxload.files import pictures

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
    monkeypatch.setattr(pictures, "write_png", lambda figure, _: found.append(figure))
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
        assert "voxels of 4 x 2 x 0.5 mm" in figure.get_suptitle()
    assert len(drawn) == 3


def test_unknown_and_extreme_proportions(tmp_path: Path, drawn: list[Figure]) -> None:
    """Voxels that nothing is known of are cubes, and so are those of which a picture would be a line."""
    planes = [np.zeros((3, 4)), np.zeros((2, 4)), np.zeros((2, 3))]
    for edges in ((1.0, 1.0, 1.0), (1.0, 1.0, 101.0)):
        pictures.draw_slices(planes, tmp_path / "p.png", title="x", spacing=edges)
    assert [panel.get_aspect() for figure in drawn for panel in figure.axes[:3]] == [1.0] * 6


def test_thinned_planes_keep_their_proportions(tmp_path: Path, drawn: list[Figure]) -> None:
    """Where of W every other voxel is shown, one shown stands for two."""
    np.save(tmp_path / "long.npy", np.zeros((2, 2, 2000), "<i2"))
    assert run(["info", str(tmp_path / "long.npy"), "--plot", str(tmp_path / "p.png")]) == 0
    (figure,) = drawn
    assert [panel.get_aspect() for panel in figure.axes[:3]] == pytest.approx([0.5, 0.5, 1.0])
