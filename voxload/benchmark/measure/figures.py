"""Figures: what the records of a run's ranks come to; pure.

Accelerator utilisation (AU) as MLPerf Storage defines it; pure. AU is the time that accelerators computed over the
time that the benchmark ran, where the first steps of each epoch are left out of both, as an accelerator would fill
its pipeline then; of several ranks the mean counts (MLPerf Storage's rules, section "Accelerator utilization";
`StatsCounter` of DLIO computes it so).

Where a step's computing is so much work, AU counts the time that it takes alone: what it takes longer beside the loader
is lost, as waiting is.

Bytes are counted three times, since they differ: delivered to the consumer, asked of the storage, given by the device.
Rates are over the time in which some rank was in an epoch, summed over epochs; emptying caches between is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from voxload.benchmark.measure.record import Epoch, Record


def epoch_utilisation(epoch: Epoch, *, warmup: int) -> float | None:
    """Return the AU of one rank's epoch, 0 to 1; None where no step is left after `warmup` of them.

    Of a step that is left out, loading and computing do not count; waiting for other ranks after it does.
    """
    steps = epoch.steps
    if len(steps.compute) <= warmup:
        return None
    spent = epoch.wall - sum(steps.stall[:warmup]) - sum(steps.compute[:warmup])
    return sum((steps.alone or steps.compute)[warmup:]) / spent if spent > 0 else None


def utilisation(records: Sequence[Record], *, warmup: int) -> float | None:
    """Return the mean AU over all ranks and epochs; None where no epoch has a step that counts."""
    found = [epoch_utilisation(epoch, warmup=warmup) for record in records for epoch in record.epochs]
    counted = [value for value in found if value is not None]
    return fmean(counted) if counted else None


PERCENTILES = (50, 90, 95, 99, 100)
"""Of latencies; 100 is the largest."""
SOURCES = ("storage", "memory", "disk", "peer")
"""Where blocks come from."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of all ranks."""

    seconds: float
    """Of all epochs, each as long as on its slowest rank."""
    steps: int
    """Steps that the ranks took together: those of one rank."""
    samples: int
    """Samples that all groups delivered; a sample that several ranks share counts once."""
    samples_per_second: float
    delivered_bytes: int
    """Handed to the consumers of all ranks, halos included."""
    delivered_per_second: float
    asked_bytes: int | None
    """Asked of the storage, as loaders count it; None where one does not."""
    read_bytes: int
    """Returned by read calls, from memory or device, as the kernel counts."""
    device_bytes: int
    """Read from devices, as the kernel counts; 0 on network file systems, which it does not count."""
    amplification: float | None
    """Bytes asked of the storage, or returned by read calls where that is unknown, over bytes delivered."""
    utilisation: float | None
    """AU, 0 to 1; None without emulated computing."""
    stall_seconds: float
    """Waiting for batches, mean over ranks."""
    compute_seconds: float
    """Emulated computing, mean over ranks."""
    slowdown: float | None
    """What the computing took over what it takes alone, after the warm-up; None where it is given time, not work."""
    peer_seconds: float
    """Waiting for other ranks, mean over ranks."""
    first_batch_seconds: float
    """From building the loader to the first batch, of the slowest rank."""
    stall: Mapping[str, float]
    """Percentiles of how long a step waited for its batch, over all ranks and steps after the warm-up, in seconds."""
    step: Mapping[str, float]
    """The same of whole steps."""
    cores: float
    """Cores that were busy on average, of all ranks together."""
    peak_memory: int
    """Bytes of the rank that had most."""
    sources: Mapping[str, int]
    """Bytes by where they came from, of `SOURCES`; empty where loaders do not tell."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def figures(records: Sequence[Record], *, group_size: int, warmup: int) -> Figures:
    """Return what one run came to.

    Parameters
    ----------
    records
        Of every rank that ran.
    group_size
        Ranks of a sample group that ran: those that share each sample.
    warmup
        Steps of each epoch that utilisation and latencies leave out.
    """
    epochs = [record.epochs for record in records]
    seconds = sum(max(epoch.wall for epoch in same) for same in zip(*epochs, strict=True))
    samples = sum(sum(epoch.steps.samples) for each in epochs[::group_size] for epoch in each)
    delivered = _sum(epochs, lambda epoch: sum(epoch.steps.nbytes))
    asked = _asked(epochs)
    read = _sum(epochs, lambda epoch: epoch.kernel.asked)
    has_computed = any(sum(epoch.steps.compute) for each in epochs for epoch in each)
    cpu = sum(epoch.kernel.cpu for each in epochs for epoch in each)
    return Figures(
        seconds=seconds,
        steps=sum(len(epoch.steps.begin) for epoch in epochs[0]),
        samples=samples,
        samples_per_second=_rate(samples, seconds),
        delivered_bytes=delivered,
        delivered_per_second=_rate(delivered, seconds),
        asked_bytes=asked,
        read_bytes=read,
        device_bytes=_sum(epochs, lambda epoch: epoch.kernel.device),
        amplification=_rate(read if asked is None else asked, delivered) if delivered else None,
        utilisation=utilisation(records, warmup=warmup) if has_computed else None,
        stall_seconds=_mean(epochs, lambda epoch: epoch.steps.stall),
        compute_seconds=_mean(epochs, lambda epoch: epoch.steps.compute),
        slowdown=_slowdown(epochs, warmup),
        peer_seconds=_mean(epochs, lambda epoch: epoch.steps.peers),
        first_batch_seconds=max(record.first_batch for record in records),
        stall=_percentiles([stall for each in epochs for epoch in each for stall in epoch.steps.stall[warmup:]]),
        step=_percentiles([took for each in epochs for epoch in each for took in epoch.steps.durations[warmup:]]),
        cores=_rate(cpu, seconds),
        peak_memory=max(record.peak_memory for record in records),
        sources=_sources(epochs),
    )


def _asked(epochs: Sequence[Sequence[Epoch]]) -> int | None:
    """Return what the loaders say that they asked of the storage."""
    found = [epoch.counts.get("bytes_read") for each in epochs for epoch in each]
    return None if None in found or not found else sum(int(value) for value in found if value is not None)


def _slowdown(epochs: Sequence[Sequence[Epoch]], warmup: int) -> float | None:
    steps = [epoch.steps for each in epochs for epoch in each]
    alone = sum(sum(one.alone[warmup:]) for one in steps)
    return sum(sum(one.compute[warmup:]) for one in steps) / alone if alone else None


def _sources(epochs: Sequence[Sequence[Epoch]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for each in epochs:
        for epoch in each:
            for kind, told in epoch.counts.get("sources", {}).items():
                totals[kind] = totals.get(kind, 0) + int(told["bytes"])
    return totals


def _sum(epochs: Sequence[Sequence[Epoch]], of: Callable[[Epoch], int]) -> int:
    return sum(of(epoch) for each in epochs for epoch in each)


def _mean(epochs: Sequence[Sequence[Epoch]], of: Callable[[Epoch], Sequence[float]]) -> float:
    """Return the mean over ranks of the sum over their epochs and steps."""
    return sum(sum(of(epoch)) for each in epochs for epoch in each) / len(epochs)


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    found = np.percentile(np.asarray(values), PERCENTILES)
    return {"max" if rank == 100 else f"p{rank}": float(value) for rank, value in zip(PERCENTILES, found, strict=True)}


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0
