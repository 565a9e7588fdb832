"""Delivery to a device: what comes there is what comes to the host, whenever and on whatever stream it is used."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

import voxload
from tests.support.devices import be_busy, own_stream
from voxload.errors import DataError
from voxload.loader import pipeline
from voxload.loader.reading.pinning import page_lock
from voxload.transforms import Cast, ChannelsLast, Compose, Log1p, Standardize, Transform

pytestmark = pytest.mark.gpu

SAMPLES = 7
SHAPE = (2, 6, 8, 10)
STORED = ("u1", "i1", "<u2", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8")
CHAINS: dict[str, tuple[Transform | None, float]] = {
    "none": (None, 0.0),
    "log1p": (Log1p(), 1e-6),
    "standardised": (Compose(Log1p(), Standardize([1.0, 2.0], [0.5, 0.25])), 1e-5),
    "bfloat16": (Compose(Log1p(), Standardize([1.0, 2.0], [0.5, 0.25]), Cast(torch.bfloat16)), 2.0**-7),
    "channels last": (Compose(Log1p(), ChannelsLast()), 1e-6),
}
"""Chains, and how far results of a device may be apart from the host's: its functions round otherwise."""


def _written(folder: Path, dtype: str) -> str:
    rng = np.random.default_rng(3)
    for number in range(SAMPLES):
        with h5py.File(folder / f"u{number}.h5", "w") as file:
            file.create_dataset("full", data=rng.integers(0, 100, SHAPE).astype(dtype), chunks=(1, 4, 4, 4))
            file["y"] = rng.uniform(-1, 1, 3)
    return f"{folder}/*.h5"


@pytest.fixture
def ints(tmp_path: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield samples of int16 with targets."""
    data = voxload.VolumeDataset(_written(tmp_path, "<i2"), fields={"x": "full"}, axes="CDHW", targets="y")
    yield data
    data.close()


def _plain(data: Any, batch_size: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Return the batches as a loader of the host gives them."""
    with_copies = [tuple(part.clone() for part in batch) for batch in voxload.DataLoader(data, batch_size)]
    return [(batch[0], batch[-1]) for batch in with_copies]


def _same(found: Tensor, expected: Tensor, tolerance: float = 0.0) -> None:
    there = found.cpu()
    assert there.dtype == expected.dtype
    assert there.shape == expected.shape
    if not tolerance:
        assert torch.equal(there, expected)
    torch.testing.assert_close(there.double(), expected.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.few_cases(3)
@pytest.mark.parametrize(
    ("dtype", "chain"),
    [
        *((dtype, chain) for dtype in STORED for chain in ("none", "standardised")),
        *((dtype, chain) for dtype in ("<i2", "<f4") for chain in ("log1p", "bfloat16", "channels last")),
    ],
)
def test_every_stored_type_arrives_as_on_the_host(dtype: str, chain: str, device: torch.device, tmp_path: Path) -> None:
    """Values and types are those of a loader without a device, with any transform; a GPU compiles each anew."""
    transform, tolerance = CHAINS[chain]
    data = voxload.VolumeDataset(_written(tmp_path, dtype), fields={"x": "full"}, axes="CDHW")
    ours = voxload.DataLoader(data, 2, device=device, transform=transform)
    theirs = voxload.DataLoader(data, 2, transform=transform)
    count = 0
    for (found,), (expected,) in zip(ours, theirs, strict=True):
        assert found.device == device
        _same(found, expected, tolerance)
        layout = torch.channels_last_3d if chain == "channels last" else torch.contiguous_format
        assert found.is_contiguous(memory_format=layout)
        count += 1
    assert count == 4
    data.close()


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_batches_that_are_kept_stay(keep: int, ints: voxload.VolumeDataset, device: torch.device) -> None:
    """The last `keep` batches are whole while the next ones are copied, over several epochs."""
    expected = _plain(ints)
    loader = voxload.DataLoader(ints, 2, device=device, keep=keep)
    last = deque[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]](maxlen=keep)
    for _ in range(3):
        for pair in zip(loader, expected, strict=True):
            last.append(pair)
            for (x, y), (a, b) in last:
                _same(x, a)
                _same(y, b)
    loader.close()


@pytest.mark.parametrize("has_own_stream", [False, True])
def test_a_consumer_that_lags_sees_its_own_batch(
    has_own_stream: bool, ints: voxload.VolumeDataset, device: torch.device
) -> None:
    """Work that the device gets to long after the loop has gone on reads the batch that it was asked to read.

    A copy into the buffer that did not wait for the consumer's stream would be seen here.
    """
    expected = _plain(ints, 1)
    found: list[Tensor] = []

    def consume() -> None:
        for x, _ in voxload.DataLoader(ints, 1, device=device):
            be_busy(device)
            found.append(x * 1)

    if has_own_stream:
        with own_stream(device):
            consume()
    else:
        consume()
    for one, (x, _) in zip(found, expected, strict=True):
        _same(one, x)


def test_a_consumer_may_change_its_stream(ints: voxload.VolumeDataset, device: torch.device) -> None:
    """Each batch is whole on the stream that asked for it, whatever the one before was asked on."""
    found: list[Tensor] = []
    batches = iter(voxload.DataLoader(ints, 1, device=device, keep=2))
    for _ in range(SAMPLES):
        with own_stream(device):
            x, _ = next(batches)
            be_busy(device)
            found.append(x * 1)
    for one, (x, _) in zip(found, _plain(ints, 1), strict=True):
        _same(one, x)


def test_two_loaders_share_a_device(ints: voxload.VolumeDataset, device: torch.device) -> None:
    """Two loaders in turn, and two epochs of one at once, do not touch each other's buffers."""
    expected = _plain(ints)
    first, second = (voxload.DataLoader(ints, 2, device=device) for _ in range(2))
    for (x, _), (y, _), (z, _), (a, _) in zip(first, second, first, expected, strict=True):
        for found in (x, y, z):
            _same(found, a)
    for loader in (first, second):
        loader.close()


@pytest.mark.long
@pytest.mark.usefixtures("no_leaks")
def test_an_epoch_may_be_left(tmp_path: Path, device: torch.device) -> None:
    """A loop that is left while copies are under way leaves nothing behind, and the next one is whole."""
    data = voxload.VolumeDataset(_written(tmp_path, "<i2"), fields={"x": "full"}, axes="CDHW", targets="y")
    expected = _plain(data)
    loader = voxload.DataLoader(data, 2, device=device)
    for stop in range(1, 4):
        for count, (x, _) in enumerate(loader, 1):
            be_busy(device)
            _same(x, expected[count - 1][0])
            if count == stop:
                break
        gc.collect()
    for (x, _), (a, _) in zip(loader, expected, strict=True):
        _same(x, a)
    del x, loader
    gc.collect()
    data.close()


def test_an_error_has_its_place(tmp_path: Path, device: torch.device) -> None:
    """A sample that cannot be read is an error where its batch is asked for; those around it are whole."""
    _written(tmp_path, "<i2")
    with h5py.File(tmp_path / "u3.h5", "r+") as file:
        del file["full"]
        file.create_dataset("full", SHAPE, "<i2", chunks=(1, 4, 4, 4))  # of which no chunk was ever written
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="CDHW")
    batches = iter(voxload.DataLoader(data, 1, device=device))
    for number in range(SAMPLES):
        if number == 3:
            with pytest.raises(DataError, match=r"u3\.h5"):
                next(batches)
            continue
        (x,) = next(batches)
        _same(x[0], data[number][0])
    data.close()


def test_a_run_goes_on_where_it_was(ints: voxload.VolumeDataset, device: torch.device) -> None:
    """A loader that takes over a state gives the batches that were left, in their order."""

    def made() -> voxload.DataLoader[Any]:
        return voxload.DataLoader(
            ints, 1, shuffle=True, device=device, generator=torch.Generator().manual_seed(5), cache=None
        )

    whole = [x.cpu() for x, _ in made()]
    for stop in (1, 3, SAMPLES - 1):
        loader = made()
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        del batches
        again = made()
        again.load_state_dict(state)
        left = [x.cpu() for x, _ in again]
        assert len(left) == SAMPLES - stop
        assert all(map(torch.equal, left, whole[stop:]))


def test_a_batch_outlives_its_loader(ints: voxload.VolumeDataset, device: torch.device) -> None:
    """What the consumer still holds, or still works on, is not given to others when the loader goes."""
    (wanted, _), *_ = _plain(ints, 1)
    loader = voxload.DataLoader(ints, 1, device=device)
    with own_stream(device):
        x, _ = next(iter(loader))
        be_busy(device)
        late = x * 1  # the device comes to it when the buffer has long been dropped
        kept = x.clone()
        loader.close()
        del loader, x
        gc.collect()
        _fill_what_is_free(device, wanted.nbytes)
    _same(late, wanted)
    _same(kept, wanted)


def _fill_what_is_free(device: torch.device, nbytes: int) -> None:
    """Take memory of a size again and again, on another stream, and write into it."""
    with own_stream(device):
        for _ in range(8):
            torch.full((nbytes,), 0x5A, dtype=torch.uint8, device=device)


def test_locked_memory_is_unlocked(
    ints: voxload.VolumeDataset, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every slot is locked once, and unlocked once nothing holds it any more, the last batch included."""
    held = dict[int, int]()
    count = 0

    class Lock:
        """Counts; on a GPU it locks, too."""

        def __init__(self, real: Any) -> None:
            self._real = real

        def lock(self, address: int, nbytes: int) -> None:
            nonlocal count
            assert address not in held
            if self._real is not None:
                self._real.lock(address, nbytes)
            held[address] = nbytes
            count += 1

        def unlock(self, address: int) -> None:
            if self._real is not None:
                self._real.unlock(address)
            del held[address]

    monkeypatch.setattr(pipeline, "page_lock", lambda place: Lock(page_lock(place)))
    loader = voxload.DataLoader(ints, 2, device=device)
    for x, _ in loader:
        assert held
        kept = x
    loader.close()
    del loader, x, kept
    gc.collect()
    assert count
    assert not held
