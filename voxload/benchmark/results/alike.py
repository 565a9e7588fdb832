"""Alike: whether results compare like with like: the same samples to the same ranks, and equally cold; pure.

Loaders, their threads and their caches may differ, since they are what is compared. So may the order's seed, and how
the same samples are stored, which is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median

from voxload.benchmark.measure.document import Document, Run
from voxload.benchmark.results.compare import flat, host_facts
from voxload.benchmark.results.measures import node_count

COLD_SHARE, WARM_SHARE = 0.01, 0.9
"""Shares of a data set in memory up to which a run began cold, and from which on it began warm."""
UNKNOWN_CACHE = "not looked at"
"""State of a page cache that nobody saw."""
_MAY_DIFFER = frozenset({"share.seed", "emulation.seed", "coldness.method", "preset", "scaled", "samples.location"})
"""Facts of a workload that do not change what is delivered."""
_DELIVERED = ("samples", "shape", "dtype", "sample_bytes")
"""Facts of a data set that say what its samples are; all others say how they are stored."""
_HOST = ("processor", "cores", "memory_bytes", "gpus", "file_system.type", "file_system")
"""Facts of a host that figures depend on; others, such as versions, are told."""
_TOLD = ("versions.", "python", "system", "name")


def conditions(document: Document) -> dict[str, str]:
    """Return what has to be equal in results that are ranked, by name."""
    found = {"ranks": str(document.ranks), "ranks of a sample group": str(document.group_ranks)}
    found["nodes"] = str(node_count(document))
    workload = flat(asdict(document.workload))
    found |= {
        f"workload {name}": text
        for name, text in workload.items()
        if name not in _MAY_DIFFER and (not name.startswith("supply.") or name == "supply.device")
    }
    data = flat(document.data)
    found |= {f"data set {name}": data.get(name, "unknown") for name in _DELIVERED}
    hosts = host_facts(document)
    found |= {f"host {name}": hosts[name] for name in _HOST if name in hosts}
    found["page cache"] = page_cache(document)
    found["delivered"] = _delivered(document)
    return found


def told(document: Document) -> dict[str, str]:
    """Return what may differ in results that are ranked, and is said where it does."""
    data = {f"data set {name}": text for name, text in flat(document.data).items() if name not in _DELIVERED}
    hosts = {f"host {name}": text for name, text in host_facts(document).items() if name.startswith(_TOLD)}
    supply = flat(asdict(document.workload.supply))
    loader = {f"loader {name}": text for name, text in supply.items() if name not in {"loader", "device"}}
    return loader | data | hosts


def unequal(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the names of what differs."""
    return [name for name in dict.fromkeys((*first, *second)) if first.get(name) != second.get(name)]


def page_cache(document: Document) -> str:
    """Return how warm the page cache was when the runs began: one state, or several where runs differ."""
    return ", ".join(sorted({_state(run) for run in document.runs}))


def _state(run: Run) -> str:
    share = run.cold.resident
    if not run.cold.is_verified or math.isnan(share):
        return UNKNOWN_CACHE
    if share <= COLD_SHARE:
        return "cold"
    # In between, half a data set out of memory compares with nothing but about the same half.
    return "warm" if share >= WARM_SHARE else f"about {round(10 * share) * 10} % in memory"


def is_wrong(document: Document) -> bool:
    """Tell whether a run delivered blocks that were not what they should be."""
    return any(record.wrong for run in document.runs for record in run.records)


def _delivered(document: Document) -> str:
    """Return what a run delivered: bytes of a sample, and how many samples where no time limit ends a run."""
    samples, nbytes = (median(document.values(name)) for name in ("samples", "delivered_bytes"))
    each = f"{nbytes / samples:.6g} bytes of a sample" if samples else "nothing"
    return each if document.workload.length.seconds else f"{samples:.0f} samples, {each}"
