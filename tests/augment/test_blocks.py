"""Blocks of all ranks are blocks of one augmented sample: halos, labels and vectors included."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import voxload
from tests.augment.samples import Stored, Volume, assembled, augmented, of_all_ranks
from voxload.augment import Augment, CubeSymmetries, Flips, Orientation, Placement, Rotations, Translations
from voxload.augment.orientation import turn_vector
from voxload.data import sample_reader, transpose
from voxload.data.sample_reader import read_placed
from voxload.errors import DataError, UsageError
from voxload.geometry import Boundary, Box, Halo, slabs
from voxload.readers import Location, open_reader

GRIDS = st.tuples(*[st.integers(1, 3)] * 3)
HALOS = st.builds(Halo, st.tuples(*[st.integers(0, 12)] * 3), st.tuples(*[st.integers(0, 4)] * 3))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("format_name", ["h5", "npy"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.data(), spatial=GRIDS, halo=HALOS, boundary=st.sampled_from(Boundary))
def test_blocks_make_the_augmented_whole(
    brick: Stored,
    tmp_path_factory: pytest.TempPathFactory,
    format_name: str,
    data: st.DataObject,
    spatial: tuple[int, int, int],
    halo: Halo,
    boundary: Boundary,
) -> None:
    """All 48 turns x translations x uneven grids and halos x boundaries: the parts agree, and make the whole."""
    volume, location = brick.whole["x"], Location(str(brick.path), "full", axes="DHWC")
    if format_name == "npy":
        path = tmp_path_factory.getbasetemp() / "brick.npy"
        if not path.exists():
            np.save(path, volume)
        location = Location(str(path), axes="CDHW")
    extents = volume.shape[1:]
    origin = (
        data.draw(st.tuples(*[st.integers(0, n - 1) for n in extents])) if boundary is Boundary.PERIODIC else (0,) * 3
    )
    turn = data.draw(st.sampled_from(Orientation.all()))
    placement = Placement(Box.whole(extents).shift(origin), turn)
    with pytest.MonkeyPatch.context() as patch:
        # Slabs of a few voxels, and copies of a few: the seams are part of what is tested.
        patch.setattr(sample_reader, "_SCRATCH_BYTES", data.draw(st.sampled_from([2**11, 2**13, 2**24])))
        patch.setattr(transpose, "_SHARE_BYTES", data.draw(st.sampled_from([2**7, 2**20])))
        reader = open_reader(location)
        parts = []
        for rank in range(prod(spatial)):
            box = voxload.ProcessGrid(spatial, prod(spatial), rank).block(placement.extents).expand(halo)
            block = np.full((2, *box.shape), -1, np.int16)
            cost = read_placed(reader, box, block, placement=placement, boundary=boundary)
            assert cost.stored_bytes > 0
            parts.append((box, block))
        reader.close()
    whole = augmented(volume, placement, halo, boundary)
    assert np.array_equal(assembled(parts, placement.extents, halo), whole)


@pytest.mark.parametrize("boundary", list(Boundary))
@pytest.mark.parametrize("epoch", [0, 3])
def test_data_sets_of_all_ranks_agree(cube: Stored, brick: Stored, boundary: Boundary, epoch: int) -> None:
    """Every field of every rank's data set, labels too, is cut from the same sample; so says the plan for it."""
    halo = Halo((1, 0, 2), (0, 3, 1))
    parts: list[Any] = [CubeSymmetries(), *([Translations()] if boundary is Boundary.PERIODIC else [])]
    augment = Augment(*parts, seed=5)
    for sample in (cube, brick):
        extents = sample.whole["x"].shape[1:]
        placement = augment.place(extents, epoch=epoch, index=0)
        found = of_all_ranks(sample, (2, 1, 3), augment=augment, epoch=epoch, halo=halo, boundary=boundary)
        for place, field in enumerate(sample.whole):
            whole = augmented(sample.whole[field], placement, halo, boundary)
            blocks = [(box, blocks[place]) for box, blocks in found]
            assert np.array_equal(assembled(blocks, extents, halo), whole), field


@pytest.mark.long
def test_draws_reach_every_symmetry_and_every_voxel() -> None:
    """Over epochs and samples each of the 48 turns and each origin is drawn about as often as the others."""
    augment = Augment(CubeSymmetries(), Translations(), seed=1)
    placements = [augment.place((4, 4, 4), epoch=epoch, index=index) for epoch in range(24) for index in range(100)]
    turns = np.unique([Orientation.all().index(one.orientation) for one in placements], return_counts=True)[1]
    origins = np.unique([one.window.start for one in placements], axis=0, return_counts=True)[1]
    for counts in (turns, origins):
        expected = len(placements) / len(counts)
        # Chi-square over its degrees of freedom: 1 in the mean, 1.6 at these numbers once in a thousand.
        assert ((counts - expected) ** 2 / expected).sum() / (len(counts) - 1) < 1.6
    assert (len(turns), len(origins)) == (48, 64)


def test_draws_depend_on_seed_epoch_and_sample_alone(cube: Stored) -> None:
    """Other seeds, epochs and samples draw otherwise; what else is drawn, and when, changes nothing."""
    first, second = (Augment(CubeSymmetries(), Translations(), seed=3) for _ in range(2))
    forward = [first.place((9, 9, 9), epoch=1, index=index) for index in range(20)]
    np.random.seed(0)  # noqa: NPY002 - the global generator must not matter
    backward = [second.place((9, 9, 9), epoch=1, index=index) for index in reversed(range(20))]
    assert forward == backward[::-1]
    assert len({str(one) for one in forward}) == 20
    for augment, epoch in ((Augment(CubeSymmetries(), Translations(), seed=4), 1), (first, 2)):
        other = [augment.place((9, 9, 9), epoch=epoch, index=index) for index in range(20)]
        assert sum(a == b for a, b in zip(forward, other, strict=True)) == 0
    # Drawn once and written down: another machine, or another numpy, must draw the same.
    assert str(forward[0]) == FIRST
    data = cube.open(augment=first, boundary="periodic")
    data.set_epoch(7)
    seventh = data[0][0]
    assert not np.array_equal(data[0][0], first_of(data, 8))
    assert np.array_equal(seventh, first_of(data, 7))
    assert np.array_equal(data[-1][0], seventh)
    index: Any = torch.tensor(0)  # what samplers of tensors give
    assert np.array_equal(data[index][0], seventh)
    data.close()


FIRST = (
    "Placement(window=Box(start=(7, 8, 8), stop=(16, 17, 17)), "
    "orientation=Orientation(axes=(2, 0, 1), flips=(False, False, True)))"
)


def first_of(data: voxload.VolumeDataset, epoch: int) -> Volume:
    """Return the first sample's first field in an epoch, read into arrays."""
    volumes = [np.empty(layout.shape, layout.dtype) for layout in data.layout(0)]
    data.read_into(0, volumes, epoch=epoch)
    return volumes[0]


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("turn", Orientation.all())
def test_vectors_turn_with_the_sample(turn: Orientation) -> None:
    """The gradient of a turned field is the turned gradient: differences along the turned axes say so."""
    field = np.random.default_rng(0).normal(size=(6, 6, 6))
    gradient = np.stack([np.zeros_like(field), *np.gradient(field)]).astype(np.float32)
    expected = np.stack(np.gradient(turn.view(field))).astype(np.float32)
    turned = turn.view(gradient).copy()
    turn_vector(turned, (1, 2, 3), turn)
    assert np.array_equal(turned[1:], expected)
    assert not turned[0].any()


def test_vectors_of_a_data_set_turn(cube: Stored) -> None:
    """Named channels of a field turn, on every rank; the others, and the other fields, stay."""
    augment = Augment(Rotations(), Flips(), seed=2, vectors={"v": (3, 0, 1)})
    placement = augment.place((9, 9, 9), epoch=0, index=0)
    turn = placement.orientation
    assert any(turn.flips)
    assert turn.axes != (0, 1, 2)
    found = of_all_ranks(cube, (1, 2, 2), augment=augment, epoch=0)
    whole = assembled([(box, blocks[2]) for box, blocks in found], (9, 9, 9), Halo.parse(0))
    plain = augmented(cube.whole["v"], placement, Halo.parse(0), Boundary.ZERO)
    assert np.array_equal(whole[2], plain[2])
    for channel, axis, is_flipped in zip((3, 0, 1), turn.axes, turn.flips, strict=True):
        component = plain[(3, 0, 1)[axis]]
        assert np.array_equal(whole[channel], -component if is_flipped else component)


def test_vectors_that_cannot_turn_are_refused(cube: Stored) -> None:
    """Channels that are not there, types without a sign and numbers without an opposite are errors that say so."""
    for field, channels, words in (("v", (2, 3, 4), "channels below 4"), ("y", (0, 1, 2), "channels below 1")):
        data = cube.open(augment=Augment(Flips(), vectors={field: channels}))
        with pytest.raises(UsageError, match=words):
            data[0]
        data.close()
    with pytest.raises(UsageError, match="three channels"):
        Augment(Flips(), vectors={"v": (0, 1)})
    with pytest.raises(UsageError, match=r"field 'z', expected one of \['x', 'y', 'v'\]"):
        cube.open(augment=Augment(Flips(), vectors={"z": (0, 1, 2)}))
    least = np.full((3, 1, 1, 1), -(2**15), np.int16)
    with pytest.raises(DataError, match="-32767 or more in int16"):
        turn_vector(least, (0, 1, 2), Orientation(flips=(True, False, False)))


def test_wrong_augmentations_are_refused(cube: Stored) -> None:
    """What a data set cannot give is refused before anything is read."""
    with pytest.raises(UsageError, match="expected a periodic sample"):
        cube.open(augment=Augment(Translations()))
    bad: Any = Flips()
    with pytest.raises(UsageError, match=r"say Augment\(Flips\(axes=None\), seed=0\)"):
        cube.open(augment=bad)
    bad = "flips"
    for parts, words in (((), "expected parts"), ((bad,), "expected parts"), ((Translations(),) * 2, "found 2 of")):
        with pytest.raises(UsageError, match=words):
            Augment(*parts)
    with pytest.raises(UsageError, match="seed of Augment"):
        Augment(Flips(), seed=-1)
    data = cube.open(augment=Augment(Flips()))
    with pytest.raises(UsageError, match="epoch"):
        data.set_epoch(-1)


def test_the_fingerprint_tells_augmentations_apart(cube: Stored) -> None:
    """Ranks that augment otherwise do not have the same samples, and their digests say so."""
    augments = [None, Augment(Flips()), Augment(Flips(), seed=1), Augment(Flips("D")), Augment(Rotations())]
    prints = {cube.open(augment=augment).fingerprint for augment in augments}
    assert len(prints) == len(augments)
    assert cube.open(augment=Augment(Flips())).fingerprint == cube.open(augment=Augment(Flips())).fingerprint


@given(
    starts=st.tuples(*[st.integers(-9, 9)] * 3),
    lengths=st.tuples(*[st.integers(1, 12)] * 3),
    chunk=st.tuples(*[st.integers(1, 5)] * 3),
    most=st.integers(1, 200),
)
def test_slabs_cover_a_box_and_split_no_chunk(
    starts: tuple[int, ...], lengths: tuple[int, ...], chunk: tuple[int, ...], most: int
) -> None:
    """Each voxel is in one slab, each chunk too unless it is larger than a slab may be, and none is too large."""
    box = Box(starts, tuple(lo + n for lo, n in zip(starts, lengths, strict=True)))
    parts = list(slabs(box, chunk, most=most))
    assert sum(part.size for part in parts) == box.size
    assert all(box.contains(part) for part in parts)
    for part in parts:
        assert part.size <= max(most, prod(chunk))
        for lo, hi, first, last, width in zip(part.start, part.stop, box.start, box.stop, chunk, strict=True):
            assert lo == first or lo % width == 0
            assert hi == last or hi % width == 0


def test_turned_copies_equal_numpys() -> None:
    """Any type and any two orders of axes, at sizes around the squares' own."""
    rng = np.random.default_rng(0)
    for dtype in ("?", "i1", "<f2", "<i2", "<f4", "<f8", "<c16"):
        for shape in ((2, 33, 1, 70), (1, 5, 64, 31), (1, 1, 1, 1), (1, 0, 3, 4)):
            source = rng.integers(0, 99, shape).astype(dtype)
            for turn in Orientation.all()[::5]:
                out = np.zeros((shape[0], *turn.shape(shape[1:])), dtype)
                transpose.copy_turned(turn.inverse().view(out), source)
                assert np.array_equal(out, turn.view(source))
