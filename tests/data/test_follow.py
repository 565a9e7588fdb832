"""Data sets that follow a catalogue: what is there keeps its index, whatever comes, and comes back as it was."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from tests.support.growing import EXTENT, grown, number_of
from voxload import VolumeDataset
from voxload.augment import Augment, RandomCrop
from voxload.catalog import Catalog
from voxload.data.lists.patches import Patches
from voxload.errors import DataError, NotFoundError, UsageError


def _numbers(data: VolumeDataset) -> list[int]:
    """Return the samples, as their voxels and targets say."""
    found = []
    for volume, target in (data[index] for index in range(len(data))):
        assert number_of(volume) == target[0]
        found.append(int(target[0]))
    return found


def test_what_is_there_keeps_its_index(tmp_path: Path) -> None:
    """New samples come behind all others, whatever their ids; without follow a data set is what it was."""
    grown(tmp_path, 5, 7)
    data, fixed = (VolumeDataset(tmp_path, targets="t", follow=follow) for follow in (True, False))
    assert (data.generation, fixed.generation) == (1, None)
    first = pickle.loads(pickle.dumps(data))  # noqa: S301 - our own
    grown(tmp_path, 9, 6)
    grown(tmp_path, 1)
    assert _numbers(data) == [5, 7]
    assert data.refresh() == data.generation == 3
    assert _numbers(data) == [5, 7, 6, 9, 1]
    assert data.sample_ids == ("s005", "s007", "s006", "s009", "s001")
    assert data.refresh(2) == 2
    assert _numbers(data) == [5, 7, 6, 9]
    assert data.refresh(1) == 1
    assert data.fingerprint == first.fingerprint
    assert (data.refresh(), _numbers(data)) == (3, [5, 7, 6, 9, 1])
    assert first.refresh() == 3
    assert first.fingerprint == data.fingerprint
    assert _numbers(first) == _numbers(data)
    assert _numbers(VolumeDataset(tmp_path, targets="t", follow=True)) == _numbers(data)
    assert _numbers(fixed) == [5, 7]
    assert _numbers(VolumeDataset(tmp_path, targets="t")) == [1, 5, 6, 7, 9]


def test_a_catalogue_without_generations_is_the_first(tmp_path: Path) -> None:
    """One that nothing was appended to has generation 0, and grows when something is."""
    grown(tmp_path / "a", 3, 4)
    place = tmp_path / "a" / "catalog.parquet"
    catalog = Catalog.read(place)
    catalog.write(place)
    Catalog(catalog.whole.drop_columns(["generation"]), catalog.root).write(place)
    data = VolumeDataset(place, targets="t", follow=True)
    assert data.generation == 0
    assert grown(tmp_path / "a", 1) == 1
    assert data.refresh() == 1
    assert _numbers(data) == [3, 4, 1]


def test_subsets_follow_by_their_condition(tmp_path: Path) -> None:
    """A condition says of new samples, too, whether they are in; indices could not."""
    grown(tmp_path, 2, 8)
    data = VolumeDataset(tmp_path, targets="t", follow=True)
    large = data.subset(where="t > 4")
    both = large.subset(where="t < 9")
    grown(tmp_path, 3, 9, 6)
    assert (data.generation, large.refresh(), both.refresh()) == (1, 2, 2)
    assert (_numbers(data), _numbers(large), _numbers(both)) == ([2, 8], [8, 6, 9], [8, 6])
    with pytest.raises(UsageError, match=r"indices of a data set that follows"):
        data.subset([0])
    with pytest.raises(UsageError, match=r"both or none"):
        data.subset([0], where="t > 4")


def test_draws_stay_with_their_sample(tmp_path: Path) -> None:
    """What an augmentation draws for a sample, and its patches, are the same before and after others come."""
    grown(tmp_path, 5, 7)
    words = {"targets": "t", "follow": True}
    augmented = VolumeDataset(tmp_path, augment=Augment(RandomCrop(2), seed=3), **words)  # type: ignore[arg-type]
    patched = VolumeDataset(tmp_path, patches=Patches(2, stride=2), **words)  # type: ignore[arg-type]
    augmented.set_epoch(4)
    before = [augmented[index][0] for index in (0, 1)]
    assert len(patched) == 2 * (EXTENT // 2) ** 3
    grown(tmp_path, 1)
    augmented.refresh()
    patched.refresh()
    assert all(torch.equal(augmented[index][0], before[index]) for index in (0, 1))
    assert _numbers(patched) == [5] * 8 + [7] * 8 + [1] * 8


def test_what_is_refused(tmp_path: Path) -> None:
    """A source that cannot be read again, a generation that there is not, and a catalogue that was written anew."""
    grown(tmp_path, 5, 7)
    with pytest.raises(UsageError, match=r"follow: found a Catalog, expected the path"):
        VolumeDataset(Catalog.read(tmp_path), follow=True)
    with pytest.raises(UsageError, match=r"follows no catalogue"):
        VolumeDataset(tmp_path).refresh()
    data = VolumeDataset(tmp_path, targets="t", follow=True)
    with pytest.raises(UsageError, match=r"generation 1, expected 2"):
        data.refresh(2)
    place = tmp_path / "catalog.parquet"
    kept = place.read_bytes()
    place.write_bytes(kept[:-9])
    with pytest.raises(DataError, match=r"Parquet"):
        data.refresh()
    place.unlink()
    with pytest.raises(NotFoundError):
        data.refresh()
    grown(tmp_path / "other", 1)
    grown(tmp_path / "other", 2)
    place.write_bytes((tmp_path / "other" / "catalog.parquet").read_bytes())
    with pytest.raises(DataError, match=r"other samples at generation 1"):
        data.refresh()
    assert (data.generation, _numbers(data)) == (1, [5, 7])
    place.write_bytes(kept)
    assert data.refresh() == 1


def test_what_was_learnt_of_samples_that_went_is_forgotten(tmp_path: Path) -> None:
    """Others that come in their places are read as they are."""
    grown(tmp_path, 5)
    kept = (tmp_path / "catalog.parquet").read_bytes()
    grown(tmp_path, 6)
    data = VolumeDataset(tmp_path, targets="t", follow=True)
    assert _numbers(data) == [5, 6]
    data.refresh(1)
    (tmp_path / "catalog.parquet").write_bytes(kept)
    assert grown(tmp_path, 8) == 2
    assert data.refresh() == 2
    assert _numbers(data) == [5, 8]
