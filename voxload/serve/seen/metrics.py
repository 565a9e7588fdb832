"""Metrics: a service's figures for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "voxload_service_"
"""How all names begin."""
_COUNTERS = (
    ("hits", "jobs_met", "hits", "Blocks that jobs took out of the service's memory."),
    ("hit_bytes", "jobs_met", "hit_bytes", "Bytes of these."),
    ("misses", "jobs_met", "misses", "Blocks that jobs had to read themselves."),
    ("stall_seconds", "jobs_met", "stall_seconds", "Seconds that jobs' loops waited for batches."),
    ("reads", "reads", "done", "Blocks that the service read."),
    ("reads_from_disk", "reads", "from_disk", "Of these, those from disk."),
    ("reads_from_others", "reads", "from_others", "Of these, those from memory of other users' services."),
    ("failed_reads", "reads", "failed", "Of these, those that brought nothing which could be kept."),
    ("storage_bytes", "reads", "storage_bytes", "Bytes that were asked of the storage."),
    ("waits", "reads", "waited_for", "Blocks that jobs waited for."),
    ("evictions", "memory", "dropped", "Blocks that went from memory."),
    ("stored", "disk", "stored", "Blocks that were written to disk."),
)
_GAUGES = (
    ("used_bytes", "used", "Bytes that are used."),
    ("capacity_bytes", "capacity", "Bytes that there are."),
    ("blocks", "blocks", "Blocks that are there."),
)


class Figures(Collector):
    """Collects a service's figures whenever somebody asks.

    Parameters
    ----------
    figures
        Returns them, by the name of a tenant: of a service of one user's, of that alone.
    """

    def __init__(self, figures: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        found = self._figures()
        for name, part, key, words in _COUNTERS:
            counter = CounterMetricFamily(PREFIX + name, words, labels=["tenant"])
            for tenant, figures in found.items():
                counter.add_metric([tenant], figures[part][key])
            yield counter
        for name, key, words in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + name, words, labels=["tenant", "level"])
            for tenant, figures in found.items():
                for level in ("memory", "disk"):
                    gauge.add_metric([tenant, level], figures[level][key])
            yield gauge
        yield from _of_jobs(found)


def _of_jobs(found: Mapping[str, Mapping[str, Any]]) -> Iterable[Metric]:
    jobs = GaugeMetricFamily(PREFIX + "jobs", "Jobs that are connected.", labels=["tenant"])
    stalls = GaugeMetricFamily(
        PREFIX + "job_stall_seconds",
        "Seconds that a job's loop waited for batches.",
        labels=["tenant", "job", "session"],
    )
    lapsed = CounterMetricFamily(PREFIX + "lapsed_leases", "Sessions that ended with their lease.", labels=["tenant"])
    for tenant, figures in found.items():
        jobs.add_metric([tenant], len(figures["jobs"]))
        lapsed.add_metric([tenant], figures["lapsed"])
        for job in figures["jobs"]:
            stalls.add_metric([tenant, job["name"], str(job["session"])], job["stall_seconds"])
    yield from (jobs, stalls, lapsed)


def registry_of(figures: Callable[[], Mapping[str, Mapping[str, Any]]]) -> CollectorRegistry:
    """Return what prometheus_client exposes, of these figures alone."""
    registry = CollectorRegistry()
    registry.register(Figures(figures))
    return registry
