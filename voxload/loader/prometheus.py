"""Figures of loaders in the text format of Prometheus.

Source: Prometheus documentation, "Exposition formats", text format 0.0.4, and "Metric and label naming".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from voxload.errors import StorageError, UsageError
from voxload.files.atomic import replacing
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
_SOURCE = "source"
_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
"""Names of labels; those that begin with two underscores are Prometheus' own."""

Labelled = tuple[Mapping[str, str], LoaderStats]
"""A loader's figures, and what tells them from other loaders'."""


def to_prometheus(stats: LoaderStats, labels: Mapping[str, str] | None = None) -> str:
    """Return one loader's figures as Prometheus' text format; see `exposition`."""
    return exposition([(labels or {}, stats)])


def exposition(figures: Sequence[Labelled]) -> str:
    """Return loaders' figures as Prometheus' text format; all are counters.

    Parameters
    ----------
    figures
        Each loader's figures with the labels of its lines, such as the rank. Texts of several loaders cannot be
        put one behind another: the format wants all lines of one name together.

    Returns
    -------
    Text that ends with a line's end, or is empty; a collector may serve it.

    Raises
    ------
    UsageError
        When a label's name is none or taken, a value cannot be written, or two loaders have equal labels.
    """
    _check([labels for labels, _ in figures])
    lines: list[str] = []
    for field, (name, help_) in _TOTALS.items():
        lines += _family(name, help_, [(labels, getattr(stats, field)) for labels, stats in figures])
    for field, (name, help_) in _BY_SOURCE.items():
        rows = [
            ({**labels, _SOURCE: source}, getattr(found, field))
            for labels, stats in figures
            for source, found in stats.sources.items()
        ]
        lines += _family(name, help_, rows)
    return "".join(f"{line}\n" for line in lines)


def write_textfile(path: Path, figures: Sequence[Labelled]) -> None:
    """Write `exposition` into a file that appears whole or not at all.

    node_exporter's textfile collector reads every ``*.prom`` of its folder; the temporary file beside it has another
    ending. One process writes one path.

    Raises StorageError when the file cannot be written, and what `exposition` raises.
    """
    text = exposition(figures)
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StorageError(
            f"figures for Prometheus {path}",
            found=os.strerror(error.errno or 0),
            expected="a file in a folder that is there and can be written",
        ) from error


def _check(labels: Sequence[Mapping[str, str]]) -> None:
    """Raise UsageError where labels cannot be written, or do not tell loaders apart."""
    for one in labels:
        for name, value in one.items():
            if not _NAME.fullmatch(name) or name == _SOURCE:
                raise UsageError(
                    f"label {name!r}",
                    found="a name that is taken" if name == _SOURCE else "no name of a label",
                    expected="ASCII letters, digits and underscores, not two of these or a digit at the start",
                )
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"label {name!r}", found=f"{value!r}: {error.reason}", expected="UTF-8") from error
    if len({frozenset(one.items()) for one in labels}) < len(labels):
        raise UsageError("labels", found="two loaders with equal ones", expected="labels that tell loaders apart")


def _family(name: str, help_: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    """Return all lines of one name; none where there is nothing to tell."""
    full = f"voxload_loader_{name}"
    lines = [f"{full}{_labels(labels)} {value}" for labels, value in rows]
    return [f"# HELP {full} {help_}", f"# TYPE {full} counter", *lines] if lines else []


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces; nothing where there are none."""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
