"""`voxload.show`: of any volume the three middle planes, of which no more is read, and its errors."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
import zarr
from matplotlib.image import imread

import voxload
import voxload.errors
from tests.support import processes
from voxload.errors import NotFoundError, UsageError

VOLUME = np.arange(6 * 8 * 10, dtype=np.float32).reshape(6, 8, 10)
PLANES = (VOLUME[3], VOLUME[:, 4], VOLUME[:, :, 5])


def _drawn(figure: Any) -> list[Any]:
    return [np.ma.filled(panel.images[0].get_array(), np.nan) for panel in figure.axes[:3]]


def _check(figure: Any, planes: Any = PLANES) -> None:
    for found, expected in zip(_drawn(figure), planes, strict=True):
        np.testing.assert_array_equal(found, np.asarray(expected, np.float64))


class _Watched:
    """An array that notes what is read of it."""

    def __init__(self, voxels: Any) -> None:
        self.voxels, self.shape, self.dtype = voxels, voxels.shape, voxels.dtype
        self.read = np.zeros(voxels.shape, int)

    def __getitem__(self, key: Any) -> Any:
        self.read[key] += 1
        return self.voxels[key]


@pytest.mark.parametrize("channels", [False, True])
def test_arrays_of_all_kinds(tmp_path: Path, *, channels: bool) -> None:
    """numpy, torch, h5py and zarr, with channels and without, give the same planes."""
    whole = np.stack([np.zeros_like(VOLUME), VOLUME]) if channels else VOLUME
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = whole
        store: Any = zarr.create_array(tmp_path / "a.zarr", shape=whole.shape, chunks=whole.shape, dtype="f4")
        store[:] = whole
        for volume in (whole, torch.from_numpy(whole), file["x"], store, whole.astype(">f8"), np.asfortranarray(whole)):
            _check(voxload.show(volume, channel=1 if channels else 0))
    halves = torch.from_numpy(whole).requires_grad_()
    _check(voxload.show(halves, channel=-1))


def test_types() -> None:
    """Whole numbers, truth values and short floats; what is rounded is rounded as its type says."""
    for dtype in ("u1", "i8", "f2", "?"):
        whole = VOLUME.astype(dtype)
        _check(voxload.show(whole), (whole[3], whole[:, 4], whole[:, :, 5]))
    short = VOLUME.astype(ml_dtypes.bfloat16)
    for volume in (short, torch.from_numpy(VOLUME).bfloat16()):
        _check(voxload.show(volume), (short[3], short[:, 4], short[:, :, 5]))


def test_only_the_planes_are_read() -> None:
    """Each voxel of a plane once, of the one channel, and no other."""
    watched = _Watched(np.stack([VOLUME] * 3))
    _check(voxload.show(watched, channel=2))
    expected = np.zeros((3, 6, 8, 10), int)
    expected[2, 3] += 1
    expected[2, :, 4] += 1
    expected[2, :, :, 5] += 1
    np.testing.assert_array_equal(watched.read, expected)


def test_large_planes_are_read_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much at once as is allowed; the picture is the same."""
    monkeypatch.setattr("voxload.pictures.planes._BAND_BYTES", 8 * 10 * 2)
    watched = _Watched(VOLUME)
    _check(voxload.show(watched))
    assert watched.read.max() == 3
    assert watched.read.sum() == 6 * 8 + 6 * 10 + 8 * 10


def test_items_of_data_sets(tmp_path: Path) -> None:
    """A tuple's and a mapping's first volume; labels and targets are passed by."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = VOLUME
        file["y"] = np.arange(3.0)
    data = voxload.VolumeDataset(str(tmp_path / "a.h5"), fields={"x": "x"}, targets="y")
    _check(voxload.show(data[0], (2, 2, 2), halo=data.halo))
    _check(voxload.show({"id": "a", "y": data[0][1], "x": data[0][0]}))


def test_what_is_missing_is_not_shown_as_a_number() -> None:
    """Masked, NaN and infinite voxels are green and counted, each once."""
    masked = np.ma.masked_array(VOLUME, mask=VOLUME[3, 4, 5] == VOLUME)
    figure = voxload.show(masked)
    assert "Green: 1 NaN voxels of these planes." in figure.get_supxlabel()
    assert all(int(np.isnan(plane).sum()) == 1 for plane in _drawn(figure))
    odd = VOLUME.copy()
    odd[3, 0, :2], odd[0, 0, 0] = (np.inf, np.nan), np.nan
    figure = voxload.show(odd)
    assert "Green: 1 NaN and 1 infinite voxels" in figure.get_supxlabel()
    assert "Green" not in voxload.show(VOLUME).get_supxlabel()


def test_green_is_drawn(tmp_path: Path) -> None:
    """A picture of nothing but NaN has green planes; one of numbers has none."""
    for name, volume in (("odd", np.full((8, 8, 8), np.nan)), ("plain", VOLUME)):
        voxload.show(volume, path=tmp_path / f"{name}.png")
        red, green, blue = np.moveaxis(imread(tmp_path / f"{name}.png")[..., :3], -1, 0)
        share = float(((green > 0.7) & (red < 0.5) & (blue < 0.7)).mean())
        assert share > 0.2 if name == "odd" else share == 0


def test_grids() -> None:
    """A ProcessGrid of any rank and three counts draw the same lines."""
    grid = voxload.ProcessGrid((2, 2, 5), 40, 33)
    first, second = voxload.show(VOLUME, grid, halo=1), voxload.show(VOLUME, (2, 2, 5), halo=1)
    for figure in (first, second):
        assert [len(panel.lines) for panel in figure.axes[:3]] == [5, 5, 2]
        assert "Lines: 2 x 2 x 5 blocks along D, H, W. Bands: their halos of 1 voxels." in figure.get_supxlabel()


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_files(tmp_path: Path, kind: str) -> None:
    """Each kind of file; nothing else is left in the folder."""
    voxload.show(VOLUME, path=str(tmp_path / f"p.{kind}"))
    (path,) = tmp_path.iterdir()
    marks = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert path.read_bytes().startswith(marks[kind])


def test_a_notebook_shows_the_figure() -> None:
    """As a PNG, without pyplot, whose state is not touched."""
    figure: Any = voxload.show(VOLUME)
    assert figure._repr_png_().startswith(b"\x89PNG")
    again = pickle.loads(pickle.dumps(figure))  # noqa: S301 - our own; processes send figures so
    assert again._repr_png_() == figure._repr_png_()


@pytest.mark.parametrize(
    ("volume", "options", "said"),
    [
        (np.zeros((4, 4)), {}, "shape"),
        (np.zeros((2, 1, 4, 4, 4)), {}, "shape"),
        (np.zeros((4, 0, 4)), {}, "one voxel or more"),
        (np.zeros((4, 4, 4), "c8"), {}, "complex64"),
        (torch.zeros(4, 4, 4, dtype=torch.complex64), {}, "complex64"),
        (np.full((4, 4, 4), "a"), {}, "whole numbers or floats"),
        ("universe.h5", {}, "a str"),
        ((torch.zeros(3),), {}, "without a volume"),
        (VOLUME, {"channel": 1}, "0 to 0"),
        (VOLUME[None], {"channel": "x"}, "whole number"),
        (VOLUME, {"spacing": (1, 2)}, "three lengths"),
        (VOLUME, {"spacing": (1, 0, 1)}, "three lengths"),
        (VOLUME, {"spacing": (1, float("nan"), 1)}, "three lengths"),
        (VOLUME, {"grid": (7, 1, 1)}, "more ranks than voxels"),
        (VOLUME, {"grid": (2, 2)}, "three counts"),
        (VOLUME, {"halo": -1}, "widths of 0 or more"),
        (VOLUME, {"boundary": "mirror"}, "periodic"),
        (VOLUME, {"path": "p.jpeg2000"}, ".png"),
    ],
)
def test_errors(volume: Any, options: dict[str, Any], said: str) -> None:
    """One line that says what was found and expected; nothing is drawn."""
    with pytest.raises(UsageError, match=said):
        voxload.show(volume, **options)


def test_a_data_set_is_indexed_first(tmp_path: Path) -> None:
    """The error says how."""
    np.save(tmp_path / "a.npy", VOLUME)
    with pytest.raises(UsageError, match=r"show\(data\[0\]\)"):
        voxload.show(voxload.VolumeDataset(str(tmp_path / "a.npy")))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Named, and not made."""
    with pytest.raises(NotFoundError, match="no such folder"):
        voxload.show(VOLUME, path=tmp_path / "none" / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    """It is refused, and what is in it stays."""
    (tmp_path / "p.png").mkdir()
    (tmp_path / "p.png" / "kept").touch()
    with pytest.raises(UsageError, match="a folder"):
        voxload.show(VOLUME, path=tmp_path / "p.png")
    assert (tmp_path / "p.png" / "kept").exists()


def _run(text: str) -> str:
    return str(processes.run([sys.executable, "-c", text], capture_output=True, text=True).stdout).strip()


def test_matplotlib_is_imported_when_called() -> None:
    """And pyplot never: importing voxload.show loads neither it nor torch."""
    text = (
        "import sys, voxload, numpy; voxload.show; early = {'matplotlib', 'torch'} & sys.modules.keys();"
        "voxload.show(numpy.zeros((4, 4, 4))); print(early, 'matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    assert _run(text) == "set() False False"


def test_without_matplotlib_an_error_says_what_to_install() -> None:
    """Before anything is read."""
    text = (
        "import sys; sys.modules['matplotlib'] = None\nimport voxload, voxload.errors\n"
        "try:\n    voxload.show(None)\nexcept voxload.errors.UsageError as error:\n    print(error)"
    )
    assert 'pip install "voxload[plots]"' in _run(text)
