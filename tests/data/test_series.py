"""Arrays of many samples and of time steps as data sets: every item against numpy, through torch's loader and ours."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import voxload
from voxload.augment import Augment, CubeSymmetries, Flips
from voxload.data.lists.window import Window
from voxload.errors import DataError, UsageError
from voxload.loader.order.state import digest_of
from voxload.transforms import Standardize

STEPS = {"a": 9, "b": 12, "c": 4}
"""Three runs of different lengths."""
SHAPE = (2, 6, 7, 8)
"""(C, D, H, W) of a step."""
Arrays = dict[str, npt.NDArray[Any]]


def series(name: str) -> npt.NDArray[np.float32]:
    """Return a run, (T, C, D, H, W)."""
    return np.random.default_rng([*name.encode()]).standard_normal((STEPS[name], *SHAPE)).astype("<f4")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs in HDF5, with a constant field and one of another step order."""
    folder = tmp_path_factory.mktemp("runs")
    for name in STEPS:
        with h5py.File(folder / f"{name}.h5", "w") as file:
            whole = series(name)
            file.create_dataset("u", data=whole, chunks=(2, 2, 4, 4, 4), compression="gzip")
            file.create_dataset("last", data=np.moveaxis(whole[:, 0], 0, -1), chunks=(3, 3, 3, 4))
            file["mask"] = (whole[0, 0] > 0).astype(np.uint8)
            file["re"] = np.array([len(whole), 0.5])
    return folder


def windows(window: Window) -> list[tuple[str, int]]:
    """Return the run and the first step of each window, in order."""
    return [
        (name, first)
        for name, steps in STEPS.items()
        for first in range(0, steps - (window.length + window.horizon - 1) * window.step, window.stride)
    ]


@given(
    length=st.integers(1, 4),
    stride=st.integers(1, 5),
    step=st.integers(1, 3),
    horizon=st.integers(0, 3),
    stack=st.booleans(),
)
def test_windows_are_what_numpy_cuts(
    runs: Path,
    length: int,
    stride: int,
    step: int,
    horizon: int,
    stack: bool,
) -> None:
    """Every window of every run, input and target, and none of two runs."""
    window = Window(length, stride=stride, step=step, horizon=horizon, stack=stack)
    expected = windows(window)
    if not expected:
        with pytest.raises(DataError, match="12 time steps"):
            voxload.VolumeDataset(f"{runs}/*.h5", fields={"x": "u"}, axes="TCDHW", window=window)
        return
    data = voxload.VolumeDataset(f"{runs}/*.h5", fields={"x": "u"}, axes="TCDHW", window=window)
    assert len(data) == len(expected)
    for index, (name, first) in enumerate(expected):
        steps = series(name)[first::step]
        parts = data[index]
        wanted = [steps[:length], *([steps[length : length + horizon]] if horizon else [])]
        assert len(parts) == len(wanted)
        for part, cut in zip(parts, wanted, strict=True):
            assert np.array_equal(part.numpy(), cut.reshape(-1, *SHAPE[1:]) if stack else cut)
        assert data.sample_ids[index] == f"{name}[t{first}]"
    data.close()


def test_without_a_window_each_step_is_a_sample(runs: Path) -> None:
    """The row of the table: a series, and no word about windows."""
    data = voxload.VolumeDataset(f"{runs}/a.h5", fields={"x": "u"}, axes="TCDHW")
    assert len(data) == STEPS["a"]
    for step in range(len(data)):
        (x,) = data[step]
        assert np.array_equal(x.numpy(), series("a")[step])


def test_each_rank_reads_its_own_part_of_every_step(runs: Path) -> None:
    """Space is cut, time is not: halo and boundary are those of each step."""
    for rank in range(8):
        grid = voxload.ProcessGrid((2, 2, 2), 8, rank)
        data = voxload.VolumeDataset(
            f"{runs}/b.h5",
            fields={"x": "u"},
            axes="TCDHW",
            window=Window(3),
            grid=grid,
            halo=1,
            boundary="periodic",
        )
        block = grid.block(SHAPE[1:])
        padded = np.pad(series("b")[2:5], [(0, 0), (0, 0), (1, 1), (1, 1), (1, 1)], mode="wrap")
        far = tuple(slice(lo, hi + 2) for lo, hi in zip(block.start, block.stop, strict=True))
        assert np.array_equal(data[2][0].numpy(), padded[(slice(None), slice(None), *far)])


def test_fields_of_all_kinds_in_one_item(runs: Path) -> None:
    """A constant field has no target; fields may store time in front or behind."""
    data = voxload.VolumeDataset(
        f"{runs}/*.h5",
        fields={"x": "u", "m": "mask", "l": "last"},
        axes={"x": "TCDHW", "m": "DHW", "l": "DHWT"},
        targets="re",
        window=Window(2, horizon=1),
    )
    assert data.part_fields == ("x", "m", "l", "x", "l")
    x, m, last, x_after, last_after, re = data[9]
    run = series("b")
    assert np.array_equal(x.numpy(), run[2:4])
    assert np.array_equal(m.numpy(), (run[:1, 0] > 0).astype(np.uint8))
    assert np.array_equal(last.numpy(), run[2:4, :1])
    assert np.array_equal(x_after.numpy(), run[4:5])
    assert np.array_equal(last_after.numpy(), run[4:5, :1])
    assert re.tolist() == [12, 0.5]


def test_the_loader_gives_what_torchs_gives(runs: Path) -> None:
    """Batches (B, T, C, d, h, w), in the same order; and again with a cache, of which the storage is read once."""
    made: dict[str, Any] = {
        "fields": {"x": "u", "m": "mask"},
        "axes": {"x": "TCDHW", "m": "DHW"},
        "window": Window(2, stride=2, horizon=2),
        "targets": "re",
    }
    data = voxload.VolumeDataset(f"{runs}/[ab].h5", **made)
    for cache in (None, voxload.Cache(memory="64MiB")):
        torch.manual_seed(3)
        theirs = DataLoader(voxload.VolumeDataset(f"{runs}/[ab].h5", **made), batch_size=3, shuffle=True)
        expected = [list(theirs) for _ in range(2)]
        torch.manual_seed(3)
        with closing(voxload.DataLoader(data, batch_size=3, shuffle=True, cache=cache)) as loader:
            found = [[[part.clone() for part in batch] for batch in loader] for _ in range(2)]
        for ours, wanted in zip(found, expected, strict=True):
            assert len(ours) == len(wanted)
            for batch, other in zip(ours, wanted, strict=True):
                assert len(batch) == len(other)
                assert all(torch.equal(a, b) for a, b in zip(batch, other, strict=True))


def test_transforms_see_steps(runs: Path) -> None:
    """A transform of channels is done to each step's, of the target too; one of items sees what the loop sees."""
    data = voxload.VolumeDataset(f"{runs}/a.h5", fields={"x": "u"}, axes="TCDHW", window=Window(2, horizon=1))
    mean, std = [1.0, -2.0], [2.0, 4.0]
    with closing(voxload.DataLoader(data, batch_size=2, transform=Standardize(mean, std))) as loader:
        x, y = next(iter(loader))
    scaled = (series("a") - np.array(mean).reshape(2, 1, 1, 1)) / np.array(std).reshape(2, 1, 1, 1)
    assert torch.allclose(x[1], torch.from_numpy(scaled[1:3]).float())
    assert torch.allclose(y[1], torch.from_numpy(scaled[3:4]).float())
    doubled = voxload.VolumeDataset(
        f"{runs}/a.h5", fields={"x": "u"}, axes="TCDHW", window=Window(2, horizon=1), transform={"x": lambda x: 2 * x}
    )
    x, y = doubled[1]
    assert np.array_equal(x.numpy(), 2 * series("a")[1:3])
    assert np.array_equal(y.numpy(), 2 * series("a")[3:4])
    with closing(voxload.DataLoader(doubled, batch_size=2, collate_fn=lambda items: items)) as loader:
        assert torch.equal(next(iter(loader))[1][0], x)


def test_a_window_is_turned_as_one(tmp_path: Path) -> None:
    """All steps are turned alike, and vectors of each with them."""
    stored = np.random.default_rng(0).standard_normal((5, 3, 4, 4, 4)).astype("<f4")
    np.save(tmp_path / "v.npy", stored)
    augment = Augment(CubeSymmetries(), seed=1, vectors={"x": (0, 1, 2)})
    made: dict[str, Any] = {"axes": "TCDHW", "augment": augment}
    together = voxload.VolumeDataset(tmp_path / "v.npy", window=Window(3, stride=2), **made)
    placement = augment.place((4, 4, 4), epoch=0, index=1)
    (x,) = together[1]
    for step in range(3):
        turned = np.ascontiguousarray(placement.orientation.view(stored[2 + step]))
        order = [placement.orientation.axes[axis] for axis in range(3)]
        signs = np.where(placement.orientation.flips, -1, 1).astype("<f4")
        assert np.array_equal(x[step].numpy(), turned[order] * signs.reshape(3, 1, 1, 1))


def test_many_samples_of_one_array(tmp_path: Path) -> None:
    """The row of the table: (N, D, H, W), one target each, named in the file; and a Zarr array with channels last."""
    stored = np.random.default_rng(1).integers(0, 99, (6, 4, 5, 6)).astype("<i2")
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file.create_dataset("volumes", data=stored, chunks=(2, 4, 5, 6))
        file["age"] = np.arange(6.0)
    data = voxload.VolumeDataset(tmp_path / "many.h5", axes="NDHW", targets="age")
    assert len(data) == 6
    assert list(data.sample_ids)[:2] == ["many[n0]", "many[n1]"]
    for index in (0, 5, -1):
        x, age = data[index]
        assert np.array_equal(x.numpy(), stored[index][None])
        assert age.item() == index % 6
    zarr.create_array(tmp_path / "many.zarr", data=np.moveaxis(stored, 0, -1), chunks=(4, 5, 6, 1))
    last = voxload.VolumeDataset(tmp_path / "many.zarr", axes="DHWN")
    assert np.array_equal(last[3][0].numpy(), stored[3][None])


def test_targets_that_are_not_one_a_sample_are_refused(tmp_path: Path) -> None:
    """Five values for six samples belong to nobody."""
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["volumes"] = np.zeros((6, 4, 5, 6), "<i2")
        file["age"] = np.arange(5.0)
    data = voxload.VolumeDataset(tmp_path / "many.h5", axes="NDHW", targets="age")
    with pytest.raises(DataError, match="5 values"):
        data[0]


def test_components_in_datasets_of_their_own(tmp_path: Path) -> None:
    """The row of the table: three datasets are the channels of one field, of files and of a catalogue."""
    parts = {
        name: np.random.default_rng(seed).random((4, 5, 6)).astype("<f4")
        for seed, name in enumerate(("vx", "vy", "vz"))
    }
    with h5py.File(tmp_path / "v.h5", "w") as file:
        for name, part in parts.items():
            file.create_dataset(name, data=part, chunks=(2, 3, 4), compression="gzip")
    data = voxload.VolumeDataset(tmp_path / "v.h5", fields={"x": ["vx", "vy", "vz"], "one": "vy"})
    x, one = data[0]
    assert np.array_equal(x.numpy(), np.stack(list(parts.values())))
    assert np.array_equal(one.numpy(), parts["vy"][None])
    with closing(voxload.DataLoader(data, cache=voxload.Cache(memory="1MiB"))) as loader:
        for _ in range(2):
            assert torch.equal(next(iter(loader))[0][0], x)


def test_planes_are_one_voxel_deep(tmp_path: Path) -> None:
    """(H, W) data are volumes with D = 1."""
    stored = np.arange(42, dtype="<i4").reshape(6, 7)
    np.save(tmp_path / "plane.npy", stored)
    (x,) = voxload.VolumeDataset(tmp_path / "plane.npy", axes="HW")[0]
    assert np.array_equal(x.numpy(), stored[None, None])


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"axes": "CDHW", "window": Window(2)}, UsageError, "without a time axis"),
        ({"axes": "TCDHW", "window": Window(200)}, DataError, "choose a shorter window"),
        ({"axes": "TCDHX"}, UsageError, "letters of"),
        ({"axes": "TCDHW", "window": 2}, UsageError, r"found 2, expected a Window, such as voxload\.Window"),
        ({"axes": "TCDHW", "patches": 2}, UsageError, r"found 2, expected a Patches, such as voxload\.Patches"),
        ({}, UsageError, 'axes="TCDHW"'),
        ({"axes": "TCDHW", "fields": {"x": ["u", "u"]}}, UsageError, "each dataset once"),
        ({"axes": "TCDHW", "fields": {"x": []}}, UsageError, "list of them"),
        ({"axes": "TCDHW", "fields": {"x": 3}}, UsageError, "name of a dataset"),
        ({"axes": {"x": "TCDHW", "y": "NTCDHW"}, "fields": {"x": "u", "y": "u"}}, UsageError, "5 axes"),
    ],
)
def test_what_cannot_be_is_refused(runs: Path, words: dict[str, Any], error: type[Exception], message: str) -> None:
    """Each refusal says what was found and what to do."""
    given_words = {"fields": {"x": "u"}} | words
    with pytest.raises(error, match=message):
        voxload.VolumeDataset(f"{runs}/a.h5", **given_words)[0]


@pytest.mark.parametrize("name", ["length", "stride", "step"])
def test_windows_of_nothing_are_refused(name: str) -> None:
    """Whole numbers of one or more."""
    for value in (0, -1, 1.5, True):
        with pytest.raises(UsageError, match=name):
            Window(**{"length": 2, name: value})  # type: ignore[arg-type] # what a user may say
    assert Window(np.int64(3)) == Window(3)  # type: ignore[arg-type] # as above


def test_windows_are_told_apart(runs: Path) -> None:
    """Data sets whose samples mean something else have other fingerprints, and copies the same."""
    made: dict[str, Any] = {"fields": {"x": "u"}, "axes": "TCDHW"}
    one, other, stacked = (
        voxload.VolumeDataset(f"{runs}/a.h5", window=window, **made)
        for window in (Window(2), Window(2, step=2), Window(2, stack=True))
    )
    assert len({one.fingerprint, other.fingerprint, stacked.fingerprint}) == 3
    assert len({digest_of(one), digest_of(other), digest_of(stacked)}) == 3
    copy = pickle.loads(pickle.dumps(one))  # noqa: S301 - just made
    assert copy.fingerprint == one.fingerprint
    assert torch.equal(copy[3][0], one[3][0])


def test_fields_with_unequal_steps_are_refused(tmp_path: Path) -> None:
    """Which steps belong together nobody knows."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["u"], file["v"] = np.zeros((5, 3, 3, 3)), np.zeros((4, 3, 3, 3))
    with pytest.raises(DataError, match=r"5 in .*u.*, 4 in .*v"):
        voxload.VolumeDataset(tmp_path / "x.h5", fields={"x": "u", "y": "v"}, axes="TDHW")


def test_augmented_series_keep_their_seed(runs: Path) -> None:
    """A window's turn follows from its index, as any sample's."""
    made: dict[str, Any] = {"fields": {"x": "u"}, "axes": "TCDHW", "augment": Augment(Flips(), seed=5)}
    one = voxload.VolumeDataset(f"{runs}/a.h5", **made)
    again = voxload.VolumeDataset(f"{runs}/a.h5", **made)
    assert all(torch.equal(one[index][0], again[index][0]) for index in range(len(one)))


GROWING = Window(2, horizon=3, first_horizons=(1, 2))
WAYS: dict[str, dict[str, Any]] = {
    "threads": {},
    "a process": {"readers": "process"},
    "a cache": {"cache": voxload.Cache(memory=1 << 24)},
    "a transform": {"transform": {"u": Standardize([0.0, 0.0], [1.0, 1.0])}},
    "a collate_fn": {"collate_fn": lambda items: [torch.stack(parts) for parts in zip(*items, strict=True)]},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_horizon_grows_from_epoch_to_epoch(runs: Path, way: str) -> None:
    """Windows stay where they are; targets have the steps of their epoch, whoever reads, and after a resumption."""
    data = voxload.VolumeDataset(f"{runs}/*.h5", fields={"u": "u"}, axes="TCDHW", window=GROWING)
    expected = windows(GROWING)
    assert len(data) == len(expected)
    with closing(voxload.DataLoader(data, batch_size=4, **WAYS[way])) as loader:
        for epoch, horizon in enumerate((1, 2, 3, 3)):
            count = 0
            for inputs, targets in loader:
                for one, (name, first) in zip(zip(inputs, targets, strict=True), expected[count:], strict=False):
                    assert np.array_equal(one[0].numpy(), series(name)[first : first + 2])
                    assert np.array_equal(one[1].numpy(), series(name)[first + 2 : first + 2 + horizon])
                    count += 1
            assert count == len(expected)
            data.set_epoch(epoch)
            assert data[0][1].shape[0] == horizon
    state = {"epoch": 1}
    with closing(voxload.DataLoader(data, batch_size=4, **WAYS[way])) as loader:
        loader.set_epoch(state["epoch"])
        assert next(iter(loader))[1].shape[1] == 2
    data.close()


@pytest.mark.parametrize("wrong", [(0,), (4,), (1.0,), "12", 2, (True,)])
def test_horizons_that_cannot_be(wrong: Any) -> None:
    """Each is a whole number of steps that the horizon has."""
    with pytest.raises(UsageError, match="first_horizons"):
        Window(2, horizon=3, first_horizons=wrong)
