"""Figures: what people and programs are shown of a service, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence

from voxload.prefetch.sharing.planner import SharedPlanner
from voxload.serve.keeping.carrier import Totals
from voxload.serve.keeping.levels import Levels
from voxload.serve.protocol.messages import Report


def memory_figures(levels: Levels, planner: SharedPlanner, totals: Totals, *, limit: int) -> dict[str, int]:
    """Return what is in memory."""
    return {
        "capacity": levels.memory.capacity,
        "limit": limit,
        "used": levels.memory.used,
        "blocks": len(planner.held),
        "dropped": totals.dropped,
    }


def disk_figures(levels: Levels, planner: SharedPlanner, totals: Totals) -> dict[str, int]:
    """Return what lies on disk."""
    return {
        "capacity": 0 if levels.disk is None else levels.disk.capacity,
        "used": planner.disk.used,
        "blocks": len(planner.disk.held),
        "stored": totals.stored,
    }


def read_figures(planner: SharedPlanner, totals: Totals) -> dict[str, float]:
    """Return what was read, and from where."""
    return {
        "under_way": planner.reading,
        "done": totals.reads,
        "from_disk": totals.near,
        "from_others": totals.elsewhere,
        "failed": totals.failed,
        "storage_bytes": totals.storage_bytes,
        "storage_seconds": totals.storage_seconds,
    }


def report_figures(reports: Sequence[Report]) -> dict[str, float]:
    """Return what jobs met with, all together."""
    return {
        "hits": sum(one.hits for one in reports),
        "hit_bytes": sum(one.hit_bytes for one in reports),
        "misses": sum(one.misses for one in reports),
        "stall_seconds": sum(one.stall for one in reports),
        "steps": sum(one.steps for one in reports),
    }
