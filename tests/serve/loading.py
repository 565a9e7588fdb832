"""Loaders that take blocks from a service, and services that they take them from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

import voxload
from tests.support import processes
from tests.support.settled import settle

SAMPLES, SIDE = 8, 16
PROGRAM = Path(sys.executable).parent / "voxload"


@contextmanager
def served(path: Path, memory: str = "16MiB", *options: str) -> Iterator[subprocess.Popen[str]]:
    """Give a service that keeps blocks to a block of code."""
    command = [str(PROGRAM), "serve", "--memory", memory, "--socket", str(path), *options]
    with processes.started(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"at {path}" in process.stderr.readline()
        yield process


def loader_of(folder: Path, cache: voxload.Cache | None, *, seed: int = 1, **options: Any) -> voxload.DataLoader:
    """Return a loader over samples in an order of its own."""
    words: dict[str, Any] = {"fields": {"x": "x", "y": "y"}, "axes": "CDHW", **options}
    data = voxload.VolumeDataset(str(folder / "*.h5"), **words)
    shuffled = torch.Generator().manual_seed(seed)
    return voxload.DataLoader(data, batch_size=2, shuffle=True, num_workers=2, cache=cache, generator=shuffled)


def stream(loader: voxload.DataLoader, epochs: int = 1) -> list[torch.Tensor]:
    """Return all tensors of some epochs."""
    return [tensor.clone() for _ in range(epochs) for batch in loader for tensor in tensors(batch)]


def tensors(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        yield batch
    else:
        for one in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors(one)


def from_service(loader: voxload.DataLoader) -> int:
    """Return how many blocks came from a service."""
    found = loader.stats().sources.get("service")
    return 0 if found is None else found.fetches


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Assert that two streams are one."""
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def write_samples(folder: Path) -> Path:
    """Write samples in compressed chunks, with two fields, a while ago; return their folder."""
    folder.mkdir()
    drawn = np.random.default_rng(0)
    for number in range(SAMPLES):
        with h5py.File(folder / f"{number:02}.h5", "w") as file:
            for name, dtype in (("x", np.int16), ("y", np.float32)):
                voxels = drawn.integers(0, 99, (2, SIDE, SIDE, SIDE)).astype(dtype)
                file.create_dataset(name, data=voxels, chunks=(1, 8, 8, 8), compression="gzip")
    settle(folder)
    return folder
