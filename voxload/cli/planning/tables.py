"""Tables and sentences of ``voxload plan``, none wider than 80 columns; and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from voxload.cli.outcomes import seconds_unit
from voxload.files.pictures import blank, write_png
from voxload.plan import Plan
from voxload.plan.forecast.forecast import Forecast
from voxload.plan.forecast.layers import LayerCost
from voxload.plan.forecast.search import Found
from voxload.units import format_bytes

_PARTS = (
    ("forward", "#1f5fa8"),
    ("backward", "#5b93cf"),
    ("update", "#a9c6e6"),
    ("halos", "#e07b20"),
    ("sums", "#f0b27a"),
    ("gradients", "#5a5f68"),
    ("waiting", "#b9a5cc"),
)


def forecast_table(title: str, forecasts: Sequence[Forecast]) -> Table:
    """Return a row for each setup: who has what, the seconds of a step and what they are, memory and reading."""
    reads = any(each.reading is not None for each in forecasts)
    is_staged = any(each.setup.stages > 1 for each in forecasts)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    names = [
        "ranks",
        "groups\nx blocks",
        "samples",
        "step\ns",
        "comp\n%",
        "halo\n%",
        "sum\n%",
        "grad\n%",
        *(["wait\n%"] if is_staged else []),
        "memory\nGiB",
    ]
    if reads:
        names += ["read\nx", "stall\ns", "bound by"]
    elif not is_staged:  # there is no room for it
        names.append("rank s\na sample")
    for name in names:
        is_text = name in {"groups\nx blocks", "bound by"}
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for each in forecasts:
        table.add_row(*_row(each, reads=reads, is_staged=is_staged))
    notes = ["percent of the step; memory of a rank, * where it does not fit"]
    if any(each.layers for each in forecasts):
        notes.append("+: layers that use the grid otherwise than for space")
    if any(each.recompute for each in forecasts):
        notes.append("r3: three modules run again in the backward pass")
    if is_staged:
        notes.append("p2: pipelines of two stages, wait: for other stages")
    if reads:
        notes.append("read: bytes of a group over those of a sample")
    table.caption, table.caption_justify = "; ".join(notes), "left"
    return table


def _row(each: Forecast, *, reads: bool, is_staged: bool) -> list[str]:
    time, setup = each.time, each.setup
    whole = each.step or 1.0
    parts = [time.forward + time.backward + time.update, time.halos, time.sums, time.gradients]
    parts += [time.waiting] if is_staged else []
    memory = f"{each.memory.use.total / 2**30:.3g}{'' if each.fits else '*'}"
    chosen = f" +{len(each.layers)}" if each.layers else ""
    chosen += f" r{len(each.recompute)}" if each.recompute else ""
    row = [str(setup.ranks), setup.describe() + chosen, str(setup.samples), seconds(each.step)]
    row += [*(f"{part / whole:.0%}".rstrip("%") for part in parts), memory]
    if not reads:
        return row if is_staged else [*row, seconds(each.cost / (setup.groups * setup.samples))]
    found = each.reading
    if found is None:
        return [*row, "", "", ""]
    stall = "?" if found.stall is None else seconds(found.stall)
    return [*row, f"{found.amplification:.2f}", stall, found.binds]


def seconds(value: float) -> str:
    """Return three digits.

    >>> seconds(0.0123456), seconds(123.4), seconds(0)
    ('0.0123', '123', '0')
    """
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def why(found: Found) -> str:
    """Return in a sentence or two why the best is best, and what limits it."""
    best, goal = found.best, found.goal
    time = best.time
    parts = {
        "computing": time.forward + time.backward,
        "updating weights": time.update,
        "halos": time.halos,
        "sums over ranks": time.sums,
        "gradients": time.gradients,
        "waiting for other stages": time.waiting,
        "waiting for data": best.step - time.total,
    }
    most = max(parts, key=parts.__getitem__)
    text = (
        f"Best by {goal}: {best.setup.describe()}, {best.setup.ranks} ranks, {seconds(best.step)} s a step; "
        f"{parts[most] / (best.step or 1):.0%} of it is {most}"
    )
    if time.hidden:
        text += f", and {seconds(time.hidden)} s of gradients travel behind the backward pass"
    if best.epoch is not None:
        factor, unit = seconds_unit(best.epoch)
        text += f". An epoch takes {best.epoch / factor:.3g} {unit}"
    if best.joules:
        text += f". A step takes {best.joules / 1e3:.3g} kJ"
    use = best.memory.use
    text += f". A rank has most memory, {format_bytes(use.total)}, in {best.memory.operation} of {best.memory.path!r}."
    unfit = found.unlikely + sum(not each.fits for each in found.setups)
    count = found.unlikely + len(found.setups)
    return text + (f" {unfit} of {count} setups do not fit." if unfit else "")


def layer_table(title: str, costs: Sequence[LayerCost]) -> Table:
    """Return a row for each layer."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    names = ("layer", "forward\nms", "backward\nms", "halos\nms", "sums\nms", "Gflop", "sent", "kept")
    for name in names:
        table.add_column(name, justify="left" if name == "layer" else "right", no_wrap=name != "layer", overflow="fold")
    for each in costs:
        times = (each.forward, each.backward, each.halos, each.sums)
        sizes = (format_bytes(each.sent) if each.sent else "-", format_bytes(each.kept) if each.kept else "-")
        name = each.path or "(none)"
        table.add_row(name, *(f"{1e3 * one:.3g}" for one in times), f"{each.flops / 1e9:.3g}", *sizes)
    table.caption, table.caption_justify = "kept: made by the forward pass, and needed by the backward pass", "left"
    return table


def choice_table(forecast: Forecast) -> Table:
    """Return a row for each layer that does not cut space alone: what it uses the axes of the grid for."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("layer", "d", "h", "w"):
        table.add_column(name, overflow="fold")
    for path, uses in forecast.layers.items():
        table.add_row(path, *uses.split(","))
    return table


def diff_table(names: tuple[str, str], plans: tuple[Plan, Plan]) -> Table:
    """Return what differs between two plans."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("", *names):
        table.add_column(name, overflow="fold")
    one, other = (_facts(each) for each in plans)
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            table.add_row(name, *(str(each.get(name, "-")) for each in (one, other)))
    return table


def _facts(plan: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "network": plan.model,
        "sample": plan.sample,
        "machine": plan.machine,
        "ranks": plan.ranks,
        "groups x blocks": f"{plan.groups} x {'x'.join(map(str, plan.spatial))}",
        "stages": plan.stages,
        "cut behind": ", ".join(plan.cuts) or "-",
        "microbatches": plan.microbatches,
        "run again": ", ".join(plan.recompute) or "-",
        "samples of a group": plan.samples,
        "optimizer": plan.optimizer,
        "type": plan.dtype,
        "wrapper": plan.wrapper,
    }
    facts |= {f"layer {name}": use for name, use in plan.layers.items()}
    return facts | {name: f"{value:.4g}" for name, value in plan.predicted.items()}


def time_figures(forecast: Forecast) -> dict[str, float]:
    """Return the parts of a step."""
    time = forecast.time
    return {name: getattr(time, name) for name, _ in _PARTS} | {"hidden": time.hidden, "total": time.total}


def draw_forecasts(forecasts: Sequence[Forecast], path: Path, *, title: str) -> None:
    """Draw what a step takes in the best setup of each number of ranks, and what memory a rank has then."""
    figure = blank(9.0, 4.2)
    figure.suptitle(title, fontsize=11)
    times, memory = figure.subplots(1, 2)
    places = range(len(forecasts))
    labels = [f"{each.setup.ranks}\n{each.setup.describe()}" for each in forecasts]
    below = [0.0] * len(forecasts)
    for name, color in _PARTS:
        values = [getattr(each.time, name) for each in forecasts]
        times.bar(places, values, bottom=below, color=color, label=name, width=0.7)
        below = [one + other for one, other in zip(below, values, strict=True)]
    stalls = [each.step - each.time.total for each in forecasts]
    if any(stalls):
        times.bar(places, stalls, bottom=below, color="#c0392b", label="waiting for data", width=0.7)
    times.set(ylabel="seconds of a step")
    uses = ("weights", "state", "gradients", "buckets", "kept", "working", "staging")
    below = [0.0] * len(forecasts)
    shades = ("#1f5fa8", "#5b93cf", "#a9c6e6", "#d4e3f3", "#e07b20", "#f0b27a", "#5a5f68")
    for name, color in zip(uses, shades, strict=True):
        values = [getattr(each.memory.use, name) / 2**30 for each in forecasts]
        memory.bar(places, values, bottom=below, color=color, label=name, width=0.7)
        below = [one + other for one, other in zip(below, values, strict=True)]
    if forecasts and max(below) > 0.3 * forecasts[0].limit / 2**30:
        memory.axhline(forecasts[0].limit / 2**30, color="#c0392b", linestyle="--", linewidth=1.2, label="limit")
    memory.set(ylabel="GiB of a rank")
    for axes in (times, memory):
        axes.set_xticks(list(places), labels, fontsize=7)
        axes.set_xlabel("ranks, and groups x blocks", fontsize=8)
        axes.legend(frameon=False, fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    write_png(figure, path)
