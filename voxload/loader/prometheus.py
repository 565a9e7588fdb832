"""Figures of a loader in the text format of Prometheus.

Source: Prometheus documentation, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from voxload.loader.stats import LoaderStats

_TOTALS = {
    "batches": ("batches_total", "Batches delivered."),
    "samples": ("samples_total", "Samples delivered."),
    "bytes_needed": ("needed_bytes_total", "Bytes of the blocks delivered."),
    "bytes_read": ("read_bytes_total", "Bytes asked of the storage."),
    "bytes_decoded": ("decoded_bytes_total", "Bytes decoded."),
    "seconds_stalled": ("stall_seconds_total", "Time in which the consumer waited for data."),
    "seconds_computing": ("compute_seconds_total", "Time in which the consumer worked."),
}
_BY_SOURCE = {
    "fetches": ("fetches_total", "Blocks that came from a source."),
    "misses": ("misses_total", "Blocks asked of a source in vain."),
    "nbytes": ("fetched_bytes_total", "Bytes that came from a source."),
    "seconds": ("fetch_seconds_total", "Time that fetches from a source took, summed over those side by side."),
    "predicted": ("predicted_seconds_total", "Time that fetches were predicted to take, where they were."),
    "foreseen": ("foreseen_seconds_total", "Time that those fetches took."),
}


def to_prometheus(stats: LoaderStats, labels: Mapping[str, str] | None = None) -> str:
    """Return a loader's figures as Prometheus' text format; all are counters.

    Parameters
    ----------
    stats
        The figures.
    labels
        Set on every line, such as the rank.

    Returns
    -------
    Text that ends with a line's end; a collector may serve it or a job write it into a file for one to find.
    """
    common = dict(labels or {})
    lines: list[str] = []
    for field, (name, help_) in _TOTALS.items():
        lines += _family(name, help_, [(common, getattr(stats, field))])
    for field, (name, help_) in _BY_SOURCE.items():
        rows = [({**common, "source": source}, getattr(found, field)) for source, found in stats.sources.items()]
        lines += _family(name, help_, rows) if rows else []
    return "\n".join(lines) + "\n"


def _family(name: str, help_: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    full = f"voxload_loader_{name}"
    return [
        f"# HELP {full} {help_}",
        f"# TYPE {full} counter",
        *(f"{full}{_labels(labels)} {value}" for labels, value in rows),
    ]


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces; nothing where there are none."""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
