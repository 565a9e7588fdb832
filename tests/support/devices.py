"""Devices: what tests marked ``gpu`` run on: the host here, a GPU where there is one.

They are one and the same test. VOXLOAD_TEST_DEVICE chooses: ``cpu`` or ``cuda``; without it a GPU is taken where torch
can use one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_BUSY = 200_000_000
"""Clock cycles, about a tenth of a second of a GPU: longer than any copy of a test."""


def chosen() -> torch.device:
    """Return the device of this run of tests."""
    name = os.environ.get("VOXLOAD_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device("cuda", 0) if name == "cuda" else torch.device(name)


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Work on a stream of one's own, which then is waited for; the host has none."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch's
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


def be_busy(device: torch.device) -> None:
    """Let the device's current stream be late with all that is asked of it from now on."""
    if device.type == "cuda":
        torch.cuda._sleep(_BUSY)  # type: ignore[no-untyped-call] # torch's own tests have no other way
