"""Loaders that deliver on a device: torch's batches, errors in their place, and nothing left of an abandoned epoch."""

from __future__ import annotations

import gc
from collections import deque
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader

import voxload
from voxload.errors import DataError, UsageError
from voxload.loader.device.copiers import parse_device


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)  # the data set does not change
@given(
    batch_size=st.one_of(st.none(), st.integers(1, 5)),
    workers=st.integers(0, 2),
    keep=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_a_loader_delivers_torchs_batches(
    data: voxload.VolumeDataset, batch_size: int | None, workers: int, keep: int, seed: int
) -> None:
    """On a device, order, values, types and containers are torch's, and the last `keep` batches stay."""
    ours = voxload.DataLoader(
        data,
        batch_size,
        shuffle=True,
        num_workers=workers,
        device="cpu",
        keep=keep,
        generator=torch.Generator().manual_seed(seed),
    )
    theirs: TorchLoader[Any] = TorchLoader(
        data, batch_size, shuffle=True, generator=torch.Generator().manual_seed(seed)
    )
    last = deque[tuple[Any, Any]](maxlen=keep)
    addresses = set()
    for _ in range(2):
        for pair in zip(ours, theirs, strict=True):
            last.append(pair)
            for found, expected in last:
                assert type(found) is type(expected)
                assert all(map(torch.equal, found, expected))
            addresses.add(pair[0][0].data_ptr())
    assert len(addresses) <= keep + 1


def test_transforms_and_collate_functions_act_on_the_device(data: voxload.VolumeDataset) -> None:
    """Transforms see what is on the device, results are the consumer's own; a collate_fn sees the same samples."""
    log = voxload.transforms.Compose(voxload.transforms.Log1p(), voxload.transforms.Cast(torch.bfloat16))
    found = [x for x, _ in voxload.DataLoader(data, 2, device="cpu", transform=log)]
    expected = [x.float().log1p().to(torch.bfloat16) for x, _ in TorchLoader(data, 2)]
    assert all(map(torch.equal, found, expected))
    sums = list(voxload.DataLoader(data, 3, device="cpu", collate_fn=_sums))
    assert sums == list(TorchLoader(data, 3, collate_fn=_sums))


def _sums(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    return [float(x.sum() + y.sum()) for x, y in samples]


def test_iterators_side_by_side_have_buffers_of_their_own(data: voxload.VolumeDataset) -> None:
    """Two epochs of one loader under way at once do not overwrite each other's batches."""
    loader = voxload.DataLoader(data, 2, device="cpu")
    whole = [x for x, _ in TorchLoader(data, 2)]
    for place, ((first, _), (second, _)) in enumerate(zip(loader, loader, strict=True)):
        assert torch.equal(first, whole[place])
        assert torch.equal(second, whole[place])


def test_a_cache_delivers_on_a_device_too(data: voxload.VolumeDataset) -> None:
    """Batches that are fetched ahead by a plan come through the same buffers."""
    loader = voxload.DataLoader(data, 2, device="cpu", cache=voxload.Cache(memory="1MiB"))
    for _ in range(2):
        for (found, _), (expected, _) in zip(loader, TorchLoader(data, 2), strict=True):
            assert torch.equal(found, expected)
    loader.close()


def test_an_unreadable_sample_is_an_error_in_its_place(folder: Path, tmp_path: Path) -> None:
    """The error of a broken sample surfaces when its batch is asked for, and later batches are unharmed."""
    for index in range(3):
        (tmp_path / f"u{index}.h5").write_bytes((folder / f"u{index:02}.h5").read_bytes())
    with h5py.File(tmp_path / "u1.h5", "r+") as file:
        del file["full"]
        file.create_dataset("full", (8, 8, 8, 4), "<i2", chunks=(4, 4, 4, 4))  # of which no chunk was ever written
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="DHWC")
    batches = iter(voxload.DataLoader(data, 1, device="cpu"))
    assert torch.equal(next(batches)[0][0], data[0][0])
    with pytest.raises(DataError, match=r"u1\.h5"):
        next(batches)
    assert torch.equal(next(batches)[0][0], data[2][0])
    with pytest.raises(StopIteration):
        next(batches)
    data.close()


@pytest.mark.usefixtures("no_leaks")
def test_an_abandoned_epoch_leaves_nothing(folder: Path) -> None:
    """Leaving a loop half-way stops its threads and files, and the next epoch is whole."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    loader = voxload.DataLoader(data, 2, device="cpu")
    for _ in loader:
        break
    for (found,), (expected,) in zip(loader, TorchLoader(data, 2), strict=True):
        assert torch.equal(found, expected)
    del loader
    gc.collect()
    data.close()


def test_arguments_are_checked(data: voxload.VolumeDataset) -> None:
    """Devices that are not there, numbers that make no sense and other data sets are refused, with what to do."""
    assert parse_device(None) is None
    assert parse_device("cpu") == torch.device("cpu")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"device": "meta"}, "expected None, 'cpu' or a CUDA device"),
        ({"device": "no such thing"}, "expected None, 'cpu' or a CUDA device"),
        ({"device": f"cuda:{torch.cuda.device_count()}"}, "device: found cuda:"),
        ({"device": torch.cuda.device_count()}, "device: found cuda:"),
        ({"device": "cpu", "keep": 0}, "keep: found 0"),
    ]
    for arguments, message in cases:
        with pytest.raises(UsageError, match=message):
            voxload.DataLoader(data, **arguments)
    with pytest.raises(UsageError, match="data set of another kind"):
        voxload.DataLoader([1, 2], device="cpu")
    with pytest.raises(UsageError, match="raise staging, or lower keep"):
        next(iter(voxload.DataLoader(data, device="cpu", keep=9, staging=3 * 4 * 8**3 * 2)))
    loader = voxload.DataLoader(data, device="cpu", keep=2)
    assert (loader.device, loader.keep) == ("cpu", 2)
