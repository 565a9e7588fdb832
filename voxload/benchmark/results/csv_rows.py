"""Rows: a result as lines of a CSV file, one a run, with a fixed header whose words carry the units."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from voxload.benchmark.measure.document import Document, Run
from voxload.benchmark.measure.figures import PERCENTILES, SOURCES
from voxload.benchmark.results.measures import node_count
from voxload.files.atomic import replacing

_RANKS = tuple("max" if rank == 100 else f"p{rank}" for rank in PERCENTILES)
_FIGURES = {
    "seconds": "seconds",
    "steps": "steps",
    "samples": "samples",
    "samples_per_second": "samples_per_second",
    "delivered_bytes": "delivered_bytes",
    "delivered_bytes_per_second": "delivered_per_second",
    "asked_bytes": "asked_bytes",
    "read_call_bytes": "read_bytes",
    "device_bytes": "device_bytes",
    "read_over_delivered": "amplification",
    "au_share": "utilisation",
    "stall_seconds": "stall_seconds",
    "compute_seconds": "compute_seconds",
    "compute_over_alone": "slowdown",
    "peer_seconds": "peer_seconds",
    "first_batch_seconds": "first_batch_seconds",
    **{f"stall_{rank}_seconds": f"stall.{rank}" for rank in _RANKS},
    **{f"step_{rank}_seconds": f"step.{rank}" for rank in _RANKS},
    "cores": "cores",
    "peak_memory_bytes": "peak_memory",
    **{f"from_{source}_bytes": f"sources.{source}" for source in SOURCES},
}
"""Columns of figures, and their names in `Document.values`."""
_FACTS = (
    "run",
    "seed",
    "started_utc",
    "preset",
    "loader",
    "location",
    "format",
    "nodes",
    "ranks",
    "group_ranks",
    "spatial",
    "halo_voxels",
    "batch_size",
    "order",
    "threads",
    "prefetch_batches",
    "device",
    "cold_method",
    "cold_is_verified",
    "resident_share",
)
CSV_HEADER = (*_FACTS, *_FIGURES, "labels")
"""Names of the columns. Shares are from 0 to 1; an empty cell is what is unknown; labels are joined by ``; ``."""


def csv_rows(document: Document) -> tuple[tuple[str, ...], ...]:
    """Return a row of cells for each run, in the order of `CSV_HEADER`."""
    columns = [document.values(name) for name in _FIGURES.values()]
    return tuple(
        (*_facts(document, run, place), *(_cell(column[place]) for column in columns), "; ".join(document.labels))
        for place, run in enumerate(document.runs)
    )


def write_csv(documents: Sequence[Document], path: Path) -> None:
    """Write the runs of all documents under one header; the file appears whole or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(CSV_HEADER)
        writer.writerows(row for document in documents for row in csv_rows(document))


def _facts(document: Document, run: Run, place: int) -> tuple[str, ...]:
    workload = document.workload
    share, supply = workload.share, workload.supply
    return (
        str(place + 1),
        str(run.seed),
        document.started,
        workload.preset,
        supply.loader,
        workload.samples.location,
        str(document.data.get("format", "")),
        str(node_count(document)),
        str(document.ranks),
        str(document.group_ranks),
        "x".join(map(str, share.spatial)),
        str(share.halo),
        str(share.batch_size),
        share.order,
        str(supply.threads),
        str(supply.prefetch),
        supply.device,
        run.cold.method,
        str(run.cold.is_verified).lower(),
        _cell(run.cold.resident),
    )


def _cell(value: float) -> str:
    """Return a number with all its digits, whole ones without a point."""
    if not math.isfinite(value):
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))
