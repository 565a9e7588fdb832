"""DataLoader: the same batches in the same order as torch's, and torch's own behaviour for other data."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DistributedSampler, Subset, TensorDataset
from torch.utils.data import DataLoader as TorchLoader

import voxload
from tests.support import processes
from voxload.errors import DataError, UsageError
from voxload.loader.sampler import GroupSampler


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if not isinstance(ours, list | tuple):
        return bool(ours == theirs)
    return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(_equal, ours, theirs))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the data set does not change
@given(
    batch_size=st.one_of(st.none(), st.integers(1, 12)),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    workers=st.integers(0, 3),
    seed=st.integers(0, 99),
    epochs=st.integers(1, 2),
)
def test_batches_equal_torchs(
    data: voxload.VolumeDataset,
    batch_size: int | None,
    shuffle: bool,
    drop_last: bool,
    workers: int,
    seed: int,
    epochs: int,
) -> None:
    """Order, values, types and containers equal torch's loader, and the global generator is left as it would be."""
    arguments: dict[str, Any] = {"batch_size": batch_size, "shuffle": shuffle}
    if batch_size is not None:
        arguments["drop_last"] = drop_last
    torch.manual_seed(seed)
    loader = TorchLoader(data, **arguments)
    theirs = [list(loader) for _ in range(epochs)]
    after = torch.rand(1)
    torch.manual_seed(seed)
    ours_loader = voxload.DataLoader(data, num_workers=workers, **arguments)
    ours = [list(ours_loader) for _ in range(epochs)]
    assert _equal(torch.rand(1), after)
    assert _equal(ours, theirs)
    assert len(ours_loader) == len(loader)


def test_a_generator_gives_torchs_order(data: voxload.VolumeDataset) -> None:
    """A generator of the caller's own is used exactly as torch uses it."""
    ours = voxload.DataLoader(data, 3, shuffle=True, generator=torch.Generator().manual_seed(5))
    theirs = TorchLoader(data, 3, shuffle=True, generator=torch.Generator().manual_seed(5))
    for _ in range(2):
        assert _equal(list(ours), list(theirs))


def test_samplers_and_collate_functions_act_as_in_torch(data: voxload.VolumeDataset) -> None:
    """Samplers, batch samplers and a collate_fn of the caller's see what they would in torch's loader."""
    order = [7, 1, 1, 10, 0]

    def collate(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, Any]:
        return {"sum": [int(x.sum()) for x, _ in samples], "y": torch.stack([y for _, y in samples])}

    cases: list[dict[str, Any]] = [
        {"sampler": order, "batch_size": 2},
        {"batch_sampler": torch.utils.data.BatchSampler(order, 3, drop_last=False)},
        {"sampler": order, "batch_size": None, "collate_fn": lambda sample: int(sample[0].sum())},
    ]
    for arguments in cases:
        assert _equal(list(voxload.DataLoader(data, **arguments)), list(TorchLoader(data, **arguments)))
    ours, theirs = (kind(data, 4, collate_fn=collate) for kind in (voxload.DataLoader, TorchLoader))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine["sum"] == other["sum"]
        assert torch.equal(mine["y"], other["y"])


def test_other_data_sets_are_torchs_business() -> None:
    """For anything but a VolumeDataset the loader is torch's, worker processes included."""
    numbers = TensorDataset(torch.arange(10))
    ours = voxload.DataLoader(numbers, 3, num_workers=1)
    assert isinstance(ours, TorchLoader)
    assert _equal(list(ours), list(TorchLoader(numbers, 3)))
    with pytest.raises(UsageError, match="data set of another kind"):
        ours.stats()
    with pytest.raises(UsageError, match="data set of another kind"):
        voxload.DataLoader(numbers, transform=voxload.transforms.Log1p())


def test_torchs_argument_errors_are_kept(data: voxload.VolumeDataset) -> None:
    """Contradicting arguments raise what torch raises."""
    for arguments in ({"shuffle": True, "sampler": [0]}, {"batch_size": None, "drop_last": True}, {"num_workers": -1}):
        with pytest.raises(ValueError) as theirs:  # noqa: PT011 - the message is compared below
            TorchLoader(data, **arguments)
        with pytest.raises(ValueError) as ours:  # noqa: PT011 - as above
            voxload.DataLoader(data, **arguments)
        assert str(ours.value) == str(theirs.value)


def test_batches_that_are_kept_stay_whole(data: voxload.VolumeDataset) -> None:
    """A consumer that keeps every batch never sees one change, although buffers are reused."""
    loader = voxload.DataLoader(data, 1, staging=3 * 4 * 8**3 * 2)
    kept = [batch[0] for _ in range(4) for batch in loader]
    expected = [data[index][0] for _ in range(4) for index in range(len(data))]
    assert all(torch.equal(batch[0], whole) for batch, whole in zip(kept, expected, strict=True))


def test_buffers_are_reused(data: voxload.VolumeDataset) -> None:
    """A consumer that drops its batches sees the same few buffers again and again, never more."""
    loader = voxload.DataLoader(data, 2, staging="1MiB")
    addresses = {batch[0].data_ptr() for _ in range(3) for batch in loader}
    assert len(addresses) <= 6  # 2 threads x 2 batches ahead, one in use, one being handed over


@pytest.mark.usefixtures("no_leaks")
def test_an_abandoned_epoch_leaves_nothing(folder: Path) -> None:
    """Leaving a loop half-way stops its threads and files, and the next epoch is whole."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    loader = voxload.DataLoader(data, 2)
    for _ in loader:
        break
    assert len(list(loader)) == 6
    del loader
    gc.collect()
    data.close()


def test_a_budget_that_does_not_fit_is_refused(data: voxload.VolumeDataset) -> None:
    """Two slots must fit the staging budget; the refusal names need, allowance and culprit."""
    loader = voxload.DataLoader(data, 4, staging="20KiB")
    with pytest.raises(UsageError, match=r"found 20 KiB, expected 32 KiB or more .* int16 \(4, 8, 8, 8\)"):
        next(iter(loader))


def test_an_unreadable_sample_is_named_and_the_rest_is_read(folder: Path, tmp_path: Path) -> None:
    """The error of a broken sample surfaces in its place, with its type; later batches are unharmed."""
    for index in range(4):
        (tmp_path / f"u{index}.h5").write_bytes((folder / f"u{index:02}.h5").read_bytes())
    whole = (tmp_path / "u1.h5").read_bytes()
    (tmp_path / "u1.h5").write_bytes(whole[: len(whole) // 2])
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="DHWC")
    batches = iter(voxload.DataLoader(data, 1))
    assert torch.equal(next(batches)[0][0], data[0][0])
    with pytest.raises(DataError, match=r"u1\.h5.*truncated"):
        next(batches)
    assert torch.equal(next(batches)[0][0], data[2][0])
    assert torch.equal(next(batches)[0][0], data[3][0])
    with pytest.raises(StopIteration):
        next(batches)
    data.close()


@pytest.fixture
def uneven(tmp_path: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield a data set whose samples have different extents, and one of another type."""
    rng = np.random.default_rng(3)
    for index, extent in enumerate((4, 4, 6, 16, 3, 4)):
        with h5py.File(tmp_path / f"u{index}.h5", "w") as file:
            file["x"] = rng.random((extent, 8, 8)).astype("<f8" if index == 5 else "<f4")
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5")
    yield data
    data.close()


@pytest.mark.parametrize("staging", ["2KiB", "5KiB", "1MiB"])
@pytest.mark.parametrize("batch_size", [None, 1])
def test_samples_of_unequal_shape_come_one_by_one(
    uneven: voxload.VolumeDataset, batch_size: int | None, staging: str
) -> None:
    """What does not fit a slot comes in memory of its own, whether the budget leaves room to read it ahead or not."""
    arguments: dict[str, Any] = {"batch_size": batch_size, "sampler": [0, 3, 2, 2, 1, 4, 5, 0]}
    theirs = list(TorchLoader(uneven, **arguments))
    ours = voxload.DataLoader(uneven, num_workers=2, timeout=processes.LIMIT, staging=staging, **arguments)
    kept = [list(ours) for _ in range(2)]
    assert _equal(kept, [theirs, theirs])


def test_samples_of_unequal_shape_are_not_batched(uneven: voxload.VolumeDataset) -> None:
    """A batch needs blocks of one shape; the sample that differs is named, and other batches are unharmed."""
    batches = iter(voxload.DataLoader(uneven, batch_sampler=[[0, 1], [1, 2], [2, 2], [0]]))
    assert torch.equal(next(batches)[0], torch.stack([uneven[0][0], uneven[1][0]]))
    with pytest.raises(DataError, match=r"sample 'u2': found float32 \(1, 6, 8, 8\), expected float32 \(1, 4, 8, 8\)"):
        next(batches)
    assert torch.equal(next(batches)[0], torch.stack([uneven[2][0], uneven[2][0]]))
    assert torch.equal(next(batches)[0][0], uneven[0][0])


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("staging", ["2KiB", "5KiB", "1MiB"])
@pytest.mark.parametrize("crop", [None, lambda item: tuple(block[:, :3, :8, :8].double() for block in item)])
def test_samples_of_unequal_shape_go_to_who_takes_them_one_by_one(
    uneven: voxload.VolumeDataset, tmp_path: Path, staging: str, crop: Callable[[Any], Any] | None
) -> None:
    """A collate_fn gets them as torch would give them, and so does a transform that makes them equal."""
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", transform=crop)
    sampler = [[0, 1], [1, 2], [3, 5, 4], [2, 2], [], [5]] if crop is None else [[0, 1], [1, 2], [3, 5, 4], [2]]
    arguments: dict[str, Any] = {"batch_sampler": sampler, "collate_fn": list if crop is None else None}
    theirs = list(TorchLoader(data, **arguments))
    ours = voxload.DataLoader(data, num_workers=2, timeout=processes.LIMIT, staging=staging, **arguments)
    kept = [list(ours) for _ in range(2)]
    assert _equal(kept, [theirs, theirs])
    if crop is None:
        with pytest.raises(DataError, match="sample 'u2': found"):
            list(voxload.DataLoader(uneven, batch_sampler=[[1, 2]], device="cpu", collate_fn=list))
    data.close()


@pytest.mark.parametrize("staging", ["34KiB", "1MiB"])
def test_batches_of_any_size_are_read(data: voxload.VolumeDataset, staging: str) -> None:
    """A batch sampler need not say how large its batches are, and may be wrong about it."""

    class Growing:
        batch_size = 2

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0], [1, 2], [3, 4, 5, 6], [], [7]])

    for sampler in ([[5], [1, 2, 3], [], [0, 4]], Growing()):
        ours, theirs = (
            [list(kind(data, batch_sampler=sampler, collate_fn=list)) for _ in range(2)]
            for kind in (lambda *_, **given: voxload.DataLoader(*_, staging=staging, **given), TorchLoader)
        )
        assert _equal(ours, theirs)
    with pytest.raises(UsageError, match="without a batch_size"):
        iter(voxload.DataLoader(data, batch_sampler=[[0]], cache=voxload.Cache(memory="1MiB")))


def test_a_batch_that_takes_too_long_is_an_error(data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a time-out, a read that hangs ends in torch's own error instead of waiting for ever."""
    release = threading.Event()

    def hang(*_: object, **__: object) -> None:
        release.wait(60)

    monkeypatch.setattr(data, "read_into", hang)
    batches = iter(voxload.DataLoader(data, 1, num_workers=1, timeout=0.2))
    try:
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.2 seconds"):
            next(batches)
    finally:
        release.set()


def test_transforms_are_applied_to_the_named_fields(folder: Path) -> None:
    """A transform acts on the first field, or on those that a mapping names."""
    fields = {"x": "full", "again": "full"}
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields=fields, axes="DHWC")
    plain = data[0][0]
    log = voxload.transforms.Log1p()
    first, second = next(iter(voxload.DataLoader(data, transform=log)))
    assert torch.equal(first[0], plain.float().log1p())
    assert torch.equal(second[0], plain)
    first, second = next(iter(voxload.DataLoader(data, transform={"again": log})))
    assert torch.equal(first[0], plain)
    assert torch.equal(second[0], plain.float().log1p())
    with pytest.raises(UsageError, match="field 'y'"):
        voxload.DataLoader(data, transform={"y": log})
    with pytest.raises(UsageError, match="collate_fn of your own"):
        voxload.DataLoader(data, transform=log, collate_fn=list)
    with pytest.raises(UsageError, match=r"cache: found \{'memory': '1MiB'\}, expected a Cache"):
        voxload.DataLoader(data, cache={"memory": "1MiB"})  # type: ignore[arg-type]
    data.close()


def test_stats_add_up(folder: Path) -> None:
    """Bytes needed, read and decoded are those of the blocks and of the chunks that hold them."""
    grid = voxload.ProcessGrid((2, 1, 1), 2, 0)
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=grid, halo=(1, 0, 0))
    loader = voxload.DataLoader(data, 2)
    with pytest.warns(UserWarning, match="cannot compare their samples"):
        batches = list(loader)
    assert len(batches) == 6
    found = loader.stats()
    assert (found.batches, found.samples) == (6, 11)
    assert found.bytes_needed == 11 * 4 * 6 * 8 * 8 * 2
    # Blocks of 4 planes with a halo plane on each side; the inner one lies in the next layer of chunks.
    assert found.bytes_decoded == 11 * 4 * 8**3 * 2
    assert 0 < found.bytes_read < found.bytes_decoded
    assert found.read_amplification == found.bytes_read / found.bytes_needed
    assert len(found.steps) == 6
    assert sum(step.stall for step in found.steps) == pytest.approx(found.seconds_stalled)
    assert sum(step.compute for step in found.steps) == pytest.approx(found.seconds_computing)
    assert 0 <= found.accelerator_utilisation <= 1
    assert found.as_dict()["steps"][0].keys() == {"asked", "stall", "compute"}
    data.close()


def test_the_order_is_built_over_groups() -> None:
    """Ranks of a group draw the same samples, groups draw different ones, and together they draw all."""
    numbers = list(range(12))
    drawn = {
        rank: list(GroupSampler(numbers, voxload.ProcessGrid((2, 1, 1), 6, rank), shuffle=True, seed=3))
        for rank in range(6)
    }
    assert drawn[0] == drawn[1]
    assert drawn[2] == drawn[3]
    assert sorted(drawn[0] + drawn[2] + drawn[4]) == numbers
    data: Any = numbers  # torch asks for a Dataset and uses its length only
    reference: DistributedSampler[int] = DistributedSampler(data, num_replicas=3, rank=1, shuffle=True, seed=3)
    assert drawn[2] == list(reference)


def test_epochs_advance_by_themselves_or_as_told() -> None:
    """Each iteration is the next epoch; set_epoch chooses one, exactly as torch's sampler orders it."""
    numbers = list(range(20))
    sampler = GroupSampler(numbers, voxload.ProcessGrid((2, 1, 1), 4, 1), shuffle=True)
    data: Any = numbers  # torch asks for a Dataset and uses its length only
    reference: DistributedSampler[int] = DistributedSampler(data, num_replicas=2, rank=0, shuffle=True)
    orders = []
    for epoch in range(3):
        reference.set_epoch(epoch)
        orders.append(list(reference))
    assert [list(sampler) for _ in range(3)] == orders
    sampler.set_epoch(1)
    assert list(sampler) == orders[1]
    assert list(sampler) == orders[2]


def test_a_sampler_over_ranks_is_refused(folder: Path) -> None:
    """Sampling over ranks would give the ranks of one group different samples."""
    grid = voxload.ProcessGrid((2, 1, 1), 4, 3)
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=grid)
    with pytest.raises(UsageError, match="found rank 3 of 4, expected group 1 of 2"):
        voxload.DataLoader(data, sampler=DistributedSampler(data, num_replicas=4, rank=3))
    voxload.DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=1))


@pytest.mark.filterwarnings("ignore:torch.distributed is not initialised")
@pytest.mark.parametrize(
    "wrap", [Subset, lambda data, _: ConcatDataset([data]), lambda data, part: Subset(Subset(data, part), [0])]
)
def test_parts_of_volumes_are_not_drawn_differently_by_ranks_of_a_group(folder: Path, wrap: Callable[..., Any]) -> None:
    """What torch wraps has an order over sample groups, as a data set of its own."""
    grid = voxload.ProcessGrid((2, 1, 1), 4, 3)
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=grid)
    part = wrap(data, [0, 1, 2])
    drawn = [
        [int(index) for index in voxload.DataLoader(wrap(of_rank, [0, 1, 2]), shuffle=True).sampler]
        for of_rank in (
            voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", grid=each)
            for each in (grid, voxload.ProcessGrid((2, 1, 1), 4, 2))
        )
    ]
    assert drawn[0] == drawn[1]
    with pytest.raises(UsageError, match="found rank 3 of 4, expected group 1 of 2"):
        iter(voxload.DataLoader(part, sampler=DistributedSampler(part, num_replicas=4, rank=3)))
    of_groups: DistributedSampler[Any] = DistributedSampler(part, num_replicas=2, rank=1, shuffle=False)
    assert torch.equal(next(iter(voxload.DataLoader(part, sampler=of_groups)))[0][0], data[1 % len(part)][0])
    assert len(list(voxload.DataLoader(part))) == -(-len(part) // 2)
    alone = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    assert len(list(voxload.DataLoader(wrap(alone, [0, 1, 2]), shuffle=True))) == len(part)
