"""The table of a simulation for the terminal; it fits 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.prefetch.events import SourceKind
from voxload.prefetch.simulate import Outcome

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


_SECONDS = ((36000.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From how many seconds on which unit serves."""
_SOURCES = (SourceKind.STORAGE, SourceKind.MEMORY, SourceKind.DISK, SourceKind.PEER)


def policy_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Return time, stall and bytes of each policy, each column in one unit."""
    factor, unit = seconds_unit(max(outcome.seconds for outcome in outcomes))
    size, size_unit = _bytes_unit(max(max(outcome.bytes_by_source.values()) for outcome in outcomes))
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    times = (f"time\n{unit}", "over\nbound", f"stall\n{unit}", "AU")
    for name in ("policy", *times, *(f"{source.value}\n{size_unit}" for source in _SOURCES), f"stored\n{size_unit}"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for outcome in outcomes:
        table.add_row(
            outcome.policy,
            _number(outcome.seconds / factor),
            f"{outcome.seconds / outcome.bound.seconds:.2f}" if outcome.bound.seconds else "-",
            _number(outcome.stall / factor),
            f"{outcome.accelerator_utilisation:.0%}",
            *(_number(outcome.bytes_by_source[source] / size) for source in _SOURCES),
            _number(sum(outcome.stored_bytes.values()) / size),
        )
    models = ", ".join(sorted({outcome.model.value for outcome in outcomes}))
    table.caption = f"bytes by source, and stored in tiers, of all ranks; model: {models}"
    table.caption_justify = "left"
    return table


def seconds_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds of the unit in which a duration is best told, and its name.

    >>> seconds_unit(500), seconds_unit(1200), seconds_unit(1e6)
    ((1.0, 's'), (60.0, 'min'), (3600.0, 'h'))
    """
    return next((factor, unit) for least, factor, unit in _SECONDS if seconds >= least)


def _bytes_unit(nbytes: int) -> tuple[int, str]:
    exponent = min(max(0, (nbytes.bit_length() - 1) // 10), len(_UNITS) - 1)
    return 2 ** (10 * exponent), _UNITS[exponent]


def _number(value: float) -> str:
    """Return three digits or all before the point; nothing is a dash, so that little is told from none."""
    if value <= 0:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else "<0.001"
