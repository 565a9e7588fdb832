"""Tables of a stored volume: what it is, and what its ranks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.advice import Advice
from voxload.cli.info_stored import RankCost
from voxload.geometry import Box
from voxload.units import format_bytes


def volume_table(figures: Mapping[str, Any], more: Mapping[str, str]) -> Table:
    """Return what a volume is; `more` are further rows above."""
    ratio = figures["decoded_bytes"] / figures["stored_bytes"] if figures["stored_bytes"] else 0.0
    window = figures["window"]
    rows = {
        **more,
        "what": f"{figures['format']}" + (f", dataset {figures['dataset']}" if figures["dataset"] else ""),
        "shape (C, D, H, W)": extents(figures["shape"]),
        "axes as stored": figures["axes"],
        "dtype": figures["dtype"],
        "chunks": extents(figures["chunks"]) if figures["chunks"] else "none: contiguous",
        "shards": extents(figures["shards"]) if figures["shards"] else "none",
        "codecs": ", ".join(figures["codecs"]) or "none",
        "read by": figures["route"],
        "stored": f"{format_bytes(figures['stored_bytes'])} ({ratio:.2f} times smaller than decoded)",
        "decoded": format_bytes(figures["decoded_bytes"]),
    }
    if window is not None:
        rows["voxels of the volume"] = f"{Box(tuple(window['start']), tuple(window['stop']))}, as a window of it"
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def cost_table(costs: Sequence[RankCost]) -> Table:
    """Return what each rank reads."""
    table = Table(
        title="What each rank reads", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for name in ("rank", "block", "needed", "chunks", "read", "read/\nneeded", "decoded/\nneeded"):
        table.add_column(name, justify="left" if name == "block" else "right", no_wrap=True)
    for rank in costs:
        table.add_row(
            str(rank.rank),
            str(rank.box),
            format_bytes(rank.needed),
            str(rank.cost.chunks) if rank.cost.chunks else "-",
            format_bytes(rank.cost.stored_bytes),
            f"{rank.read_amplification:.3f}",
            f"{rank.decode_amplification:.3f}",
        )
    return table


def advice_line(advice: Advice, costs: Sequence[RankCost]) -> str:
    """Say what the best chunks for this grid would change."""
    now = sum(rank.cost.decoded_bytes for rank in costs) / sum(rank.needed for rank in costs)
    chunks = ",".join(map(str, advice.chunks))
    if round(advice.decode_amplification, 3) >= round(now, 3):
        return f"Over all ranks {now:.3f} of what is needed is decoded; no chunks would do with less."
    return (
        f"Over all ranks {now:.3f} of what is needed is decoded; with chunks {chunks} it would be "
        f"{advice.decode_amplification:.3f} (voxload convert --chunks {chunks})."
    )


def extents(shape: Sequence[int]) -> str:
    """Return extents as people write them."""
    return " x ".join(map(str, shape))
