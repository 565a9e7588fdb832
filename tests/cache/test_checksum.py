"""Checksums: the right numbers, without the interpreter's lock."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator

import google_crc32c
import numpy as np
import pytest

from voxload.cache.codec import pack, unpack
from voxload.cache.form import PIECE, checksum, copy_and_sum


@pytest.mark.parametrize("size", [0, 1, 1000, PIECE, 2 * PIECE + 3])
def test_it_is_crc_32c(size: int) -> None:
    """Another implementation gives the same numbers, at once or continued; copying gives them too."""
    data = np.random.default_rng(size).integers(0, 255, size, np.uint8)
    expected = google_crc32c.value(data.tobytes())
    assert checksum(data) == checksum(data.tobytes()) == expected
    assert checksum(data[size // 3 :], checksum(data[: size // 3])) == expected
    copy = np.empty_like(data)
    assert copy_and_sum(data, copy) == expected
    assert np.array_equal(copy, data)
    assert checksum(b"123456789") == 0xE3069283  # the check value of the Castagnoli polynomial


@pytest.fixture
def progress() -> Iterator[Callable[[], int]]:
    """Return a counter of another thread that only goes on while nobody keeps the interpreter's lock."""
    count, is_over, before = [0], threading.Event(), sys.getswitchinterval()

    def work() -> None:
        while not is_over.is_set():
            count[0] += 1
            time.sleep(0)  # gives the lock away, and waits until it is given back

    sys.setswitchinterval(1000)
    thread = threading.Thread(target=work)
    thread.start()
    yield lambda: count[0]
    is_over.set()
    sys.setswitchinterval(before)
    thread.join()


def test_no_lock_is_held(progress: Callable[[], int]) -> None:
    """Another thread goes on while bytes are summed, copied, packed and unpacked."""
    data = np.random.default_rng(0).poisson(1, 2**22).astype("i2").view(np.uint8)
    packed, out = np.empty_like(data), np.empty_like(data)
    length = pack(data, 2, packed)
    calls: tuple[Callable[[], object], ...] = (
        lambda: checksum(data),
        lambda: copy_and_sum(data, out),
        lambda: pack(data, 2, packed),
        lambda: unpack(packed[:length], 2, out),
    )
    for call in calls:
        start = progress()
        # A busy machine may not run the other thread during one call; a held lock stops it during all.
        assert any(call() is not None and progress() > start for _ in range(200))
