"""Samplers that draw a sample more than once: each draw is augmented anew, and the same wherever it is drawn."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import RandomSampler, Sampler, WeightedRandomSampler

import voxload
from tests.augment.samples import AXES, FIELDS, make
from voxload.augment import Augment, Draw, Flips, Numbered, RandomCrop, Translations
from voxload.errors import UsageError
from voxload.grid import ProcessGrid
from voxload.loader.order.repeats import Repeats

DRAWS = 10
CROP = Augment(RandomCrop((4, 4, 4)), Flips(), seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two samples, whose crops lie at one of 1,120 places."""
    path = tmp_path_factory.mktemp("repeats")
    for index in range(2):
        make(path / f"s{index}.h5", (10, 13, 19), seed=index)
    return path


def opened(folder: Path, pattern: str = "*", **arguments: Any) -> voxload.VolumeDataset:
    """Return the samples as a data set of one field that is cropped."""
    words = {"augment": CROP, **arguments}
    return voxload.VolumeDataset(f"{folder}/{pattern}.h5", fields={"x": FIELDS["x"]}, axes={"x": AXES["x"]}, **words)


def expected(data: voxload.VolumeDataset, order: list[int], epoch: int) -> torch.Tensor:
    """Return what each draw of an order should be, one after the other."""
    seen: Counter[int] = Counter()
    found = []
    for index in order:
        volumes = [np.empty(layout.shape, layout.dtype) for layout in data.layout(index)]
        data.read_into(index, volumes, epoch=epoch, repeat=seen[index])
        seen[index] += 1
        found.append(torch.from_numpy(volumes[0]))
    return torch.stack(found)


def stacked(batches: Any) -> torch.Tensor:
    """Return the samples of batches, one after the other."""
    return torch.cat([batch[0] for batch in batches])


@pytest.mark.parametrize(("batch", "workers"), [(1, 0), (3, 0), (2, 3)])
def test_one_volume_gives_other_crops(folder: Path, batch: int, workers: int) -> None:
    """Ten draws of one sample are ten crops in each of two epochs, for any batch size and threads."""
    data = opened(folder, "s0")
    sampler = RandomSampler(data, replacement=True, num_samples=DRAWS)
    loader = voxload.DataLoader(data, batch, sampler=sampler, num_workers=workers)
    epochs = [stacked(loader) for _ in range(2)]
    for epoch, found in enumerate(epochs):
        assert torch.equal(found, expected(data, [0] * DRAWS, epoch))
    crops = {volume.numpy().tobytes() for volume in torch.cat(epochs)}
    assert len(crops) > DRAWS
    data.close()


def test_first_draws_are_what_they_were() -> None:
    """Orders without repetition give the crops that they gave before draws were counted."""
    augment = Augment(Translations(), RandomCrop((4, 5, 6)), Flips(), seed=7)
    known = {
        (0, 0): ((5, 3, 5), (False, True, False)),
        (3, 5): ((6, 4, 5), (False, True, True)),
        (1, 2**33): ((11, 8, 3), (True, True, False)),
    }
    for (epoch, index), (start, flips) in known.items():
        place = augment.place((9, 8, 9), epoch=epoch, index=index)
        assert (place.window.start, place.orientation.flips) == (start, flips)
        assert augment.place((9, 8, 9), epoch=epoch, index=index, repeat=1).window.start != start


def test_a_count_below_zero_is_refused(folder: Path) -> None:
    """Nothing was drawn less than never."""
    data = opened(folder)
    (layout,) = data.layout(0)
    with pytest.raises(UsageError, match="repeat: found -1"):
        data.read_into(0, [np.empty(layout.shape, layout.dtype)], repeat=-1)
    data.close()


class Unknown(Sampler[int]):
    """A sampler that nobody knows, which repeats samples."""

    def __iter__(self) -> Iterator[int]:
        return iter([0, 1, 1, 0, -1, 0, 1, 1, 0, 1])

    def __len__(self) -> int:
        return DRAWS


def seeded(kind: type[Any], *arguments: Any, **words: Any) -> Any:
    """Return one of torch's random samplers with a generator of its own."""
    return kind(*arguments, **words, generator=torch.Generator().manual_seed(5))


GLOBAL = "random, torch's generator"
"""Draws a seed from torch's global generator with the first batch: nothing of its order is known before."""
SAMPLERS: dict[str, Callable[[voxload.VolumeDataset], Any]] = {
    "random": lambda data: seeded(RandomSampler, data, replacement=True, num_samples=DRAWS),
    GLOBAL: lambda data: RandomSampler(data, replacement=True, num_samples=DRAWS),
    "weighted": lambda _: seeded(WeightedRandomSampler, [1.0, 3.0], DRAWS),
    "list": lambda _: [0, 0, 1, 0, -2, 1, 1, 0, 0, 1],
    "unknown": lambda _: Unknown(),
}


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(
    ("name", "left"), [(name, left) for name in SAMPLERS for left in (0, 1, 3) if left or name != GLOBAL]
)
def test_resumed_draws_go_on_counting(folder: Path, name: str, left: int) -> None:
    """A loader that goes on in the middle gives what the first one would have, with another batch size too."""
    torch.manual_seed(9)
    data = opened(folder)
    loader = voxload.DataLoader(data, 2, sampler=SAMPLERS[name](data))
    next(iter(loader))  # an epoch before, left early
    batches = iter(loader)
    for _ in range(left):
        next(batches)
    state = loader.state_dict()
    rest = [batch[0] for batch in batches]
    elsewhere = opened(folder)
    size = 2 if name == "unknown" else 1
    resumed = voxload.DataLoader(elsewhere, size, sampler=SAMPLERS[name](elsewhere), num_workers=2)
    resumed.load_state_dict(pickle.loads(pickle.dumps(state)))  # noqa: S301 - its own bytes
    assert torch.equal(stacked(resumed), torch.cat(rest))
    following = [stacked(loader), stacked(resumed)]
    if name != GLOBAL:
        assert torch.equal(*following)
    data.close()
    elsewhere.close()


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=8), st.data())
def test_counts_are_those_of_the_order(batches: list[list[int]], draw: st.DataObject) -> None:
    """However often batches are taken back and begun again, and whatever was passed before."""
    passed = draw.draw(st.lists(st.integers(-4, 3)))
    known = False
    repeats = Repeats(4, lambda: passed if known else None)
    assert not repeats.count()
    known = True
    assert repeats.count()
    seen = Counter(index % 4 for index in passed)
    for batch in batches:
        for _ in range(draw.draw(st.integers(0, 2))):
            repeats.add(batch)
            repeats.take_back(batch)
        wanted = []
        for index in batch:
            wanted.append(seen[index])
            seen[index] += 1
        assert repeats.of(batch) == tuple(wanted)
        repeats.add(batch)
    assert Repeats(0).of([5, 5]) == (0, 0)
    assert repeats.of(["no sample", 99]) == (0, 0)


def test_iterators_side_by_side_count_for_themselves(folder: Path) -> None:
    """Two that take slots from each other, and one that is left early, give each its own order."""
    data = opened(folder)
    order = [0, 0, 1, 0, 1, 0, 0, 1]
    block = 4 * 4**3 * 2
    loader = voxload.DataLoader(data, 1, sampler=order, staging=4 * block, num_workers=2)
    first, second = iter(loader), iter(loader)
    found: list[list[torch.Tensor]] = [[], []]
    for _ in order:
        found[0].append(next(first)[0])
        found[1].append(next(second)[0])
    for epoch, volumes in enumerate(found):
        assert torch.equal(torch.cat(volumes), expected(data, order, epoch))
    next(iter(loader))
    assert torch.equal(stacked(loader), expected(data, order, 3))
    data.close()


def test_ranks_have_blocks_of_one_draw(folder: Path) -> None:
    """The two ranks of a group put together are the crop that one rank alone has, draw by draw."""
    order = [0, 1, 1, 0, 1]
    halves = []
    for rank in range(2):
        part = opened(folder, grid=ProcessGrid(spatial=(2, 1, 1), world_size=2, rank=rank))
        with pytest.warns(UserWarning, match="torch.distributed is not initialised"):
            halves.append(stacked(voxload.DataLoader(part, 2, sampler=order)))
        part.close()
    data = opened(folder)
    assert torch.equal(torch.cat(halves, 2), expected(data, order, 0))
    data.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_own_loader_counts_with_a_numbered_sampler(folder: Path, workers: int) -> None:
    """Its worker processes get the count with the index; without it every draw of an epoch is the same."""
    data = opened(folder)
    order = [0, 1, 1, 0, 0, 1]
    loader: Any = TorchLoader(data, 2, sampler=Numbered(order), num_workers=workers)
    assert torch.equal(stacked(loader), expected(data, order, 0))
    plain: Any = TorchLoader(data, 2, sampler=[0, 0])
    (volumes,) = [batch[0] for batch in plain]
    assert torch.equal(volumes[0], volumes[1])
    data.close()


def test_numbered_draws() -> None:
    """They are indices that keep their count through pickling, and an epoch that is chosen reaches the sampler."""
    (_, draw) = Numbered([4, 4])
    copy = pickle.loads(pickle.dumps(draw))  # noqa: S301 - its own bytes
    assert isinstance(copy, Draw)
    assert (copy, copy.repeat, len(Numbered([4, 4]))) == (4, 1, 2)
    sampler: Any = torch.utils.data.DistributedSampler(range(4), 1, 0)  # type: ignore[arg-type]
    Numbered(sampler).set_epoch(3)
    Numbered([1]).set_epoch(3)
    assert sampler.epoch == 3
