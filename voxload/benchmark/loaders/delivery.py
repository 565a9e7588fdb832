"""Delivery: batches as they are collated, put where the workload wants them."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from torch import Tensor

from voxload.benchmark.workload import Supply

CPU = "cpu"


def is_on_device(supply: Supply) -> bool:
    """Tell whether batches go to a device, from pinned memory."""
    return supply.device != CPU


def delivered(batches: Iterable[Tensor], supply: Supply) -> Generator[Tensor]:
    """Yield the batches where they are wanted, and hold none of them while the next one is made."""
    for batch in batches:
        yield batch.to(supply.device, non_blocking=True) if is_on_device(supply) else batch
        del batch
