"""Files of machines: TOML that says what a plan needs; those that are shipped, and those that a calibration writes.

``template.toml`` of `voxload.prefetch.machines` explains every entry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from voxload.errors import UsageError
from voxload.files.atomic import replacing
from voxload.plan.costs.kernels import KernelPoints, numbers_of
from voxload.plan.costs.speeds import Link
from voxload.plan.platform.calibration import Calibration, MeasuredStorage, Sharing
from voxload.plan.platform.platform import Device, Platform
from voxload.plan.trace.operation import Phase
from voxload.prefetch import machines
from voxload.prefetch.machines.entries import Entries

_STORAGE = ("storage", "network", "memory", "staging")
_REQUESTS = 8
"""Of one rank at once, to the storage or to peers: what the loader has under way."""
_SHARED = tuple(each.name for each in fields(Sharing) if each.name != "ranks")
_REMEDY = "calibrate it with voxload plan calibrate, or add [device] and [links] as in template.toml"


@cache
def _own() -> Mapping[str, str]:
    """Return the texts of machines of which nothing is known that ``voxload simulate`` could use."""
    folder = files("voxload.plan.platform") / "machines"
    found = [each for each in folder.iterdir() if each.name.endswith(".toml")]
    return MappingProxyType({each.name.removesuffix(".toml"): each.read_text(encoding="utf-8") for each in found})


def names() -> tuple[str, ...]:
    """Return the names of the machines that voxload ships and that say enough for a plan."""
    shipped = (name for name in machines.names() if "[device]" in machines.text_of(name) and name != "template")
    return tuple(sorted({*_own(), *shipped}))


def load(name: str) -> Platform:
    """Return a machine, by name or by the path of its file.

    Raises
    ------
    NotFoundError
        When there is neither.
    UsageError
        When the file is no TOML, says nothing of devices and links, or an entry is missing, unknown or wrong.
    """
    text = machines.text_of(name, _own())
    top = machines.entries_of(text, name)
    if not top.has("device"):
        raise UsageError(
            f"machine {name}", found="nothing about devices", expected=f"one of {', '.join(names())}", remedy=_REMEDY
        )
    storage = machines.parse(text, name, needs_compute=False) if all(map(top.has, _STORAGE)) else None
    calibration = _calibration(top.part("calibration"), top) if top.has("calibration") else None
    node = top.part("node")
    links = top.part("links")
    within = _link(links.part("within"))
    between = _link(links.part("between")) if links.has("between") or calibration is None else None
    device = _device(top.part("device"), is_measured=calibration is not None)
    found = Platform(
        top.text("name"), top.text("source"), node.count("ranks"), device, within, between, storage, calibration
    )
    for each in (*_STORAGE, "compute", "disk"):
        top.pass_over(each)
    for part in (top, node, links):
        part.check_all_used()
    return found


def _device(part: Entries, *, is_measured: bool) -> Device:
    flops: dict[str, float] = {}
    if not is_measured:
        types = part.part("flops")
        share = part.positive("share") if part.has("share") else 1.0
        flops = {each: share * types.positive(each) for each in types.names()}
    part.pass_over("kind")
    found = Device(
        part.text("name"),
        part.size("memory"),
        MappingProxyType(flops),
        0.0 if is_measured else part.rate("bandwidth"),
        0.0 if is_measured else part.seconds("launch"),
        part.positive("watts") if part.has("watts") else 0.0,
    )
    part.check_all_used()
    return found


def _link(part: Entries) -> Link:
    found = Link(part.seconds("latency"), 1 / part.rate("bytes_per_second"))
    part.check_all_used()
    return found


def _calibration(part: Entries, top: Entries) -> Calibration:
    device = top.part("device")
    kernels = tuple(_points(each) for each in part.tables("kernels"))
    sharing = tuple(_sharing(each) for each in part.tables("sharing"))
    overheads = part.numbers("overheads")
    if len(overheads) != len(Phase) or not kernels:
        raise UsageError(
            "[calibration]",
            found=f"{len(overheads)} overheads, {len(kernels)} kinds of operations",
            expected=f"{len(Phase)}, and one or more",
            remedy="calibrate again",
        )
    for each in ("when", "torch", "threads"):
        part.pass_over(each)
    kind, name, memory = device.text("kind"), device.text("name"), device.size("memory")
    found = Calibration(part.count("ranks"), kind, name, memory, overheads, kernels, sharing)
    part.check_all_used()
    return found


def _points(part: Entries) -> KernelPoints:
    rows = part.rows("points")
    kind = part.text("kind")
    part.check_all_used()
    wanted = numbers_of(kind) + 1
    if not rows or any(len(row) != wanted or min(row) <= 0 for row in rows):
        raise UsageError(
            f"[[calibration.kernels]] of {kind}",
            found=f"{len(rows)} points, of {sorted({len(row) for row in rows})} numbers, or some not above 0",
            expected=f"points of {wanted} numbers above 0",
            remedy="calibrate again, with this version",
        )
    return KernelPoints(kind, tuple(row[:-1] for row in rows), tuple(row[-1] for row in rows))


def _sharing(part: Entries) -> Sharing:
    found = Sharing(part.count("ranks"), *map(part.seconds, _SHARED))
    part.check_all_used()
    return found


def write(
    calibration: Calibration, path: Path, *, name: str, day: date, storage: MeasuredStorage | None = None
) -> None:
    """Write what was measured as the file of a machine; it appears whole or not at all."""
    lines = [*_lines(calibration, name, day), *(() if storage is None else _storage_lines(calibration, storage))]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _storage_lines(calibration: Calibration, found: MeasuredStorage) -> Iterator[str]:
    cores = max(1, len(os.sched_getaffinity(0)) // calibration.ranks)
    yield from ("", "[storage]", f"latency = {found.latency:.6g}", f"threads = {_REQUESTS}")
    yield f"bytes_per_second = {_rates(found.reads)}"
    link = next((each for each in calibration.sharing if each.ranks > 1), Sharing(1))
    copies = dict(found.copies)
    speed = 1 / link.seconds_per_byte if link.seconds_per_byte else max(copies.values())
    yield from ("", "# Between ranks of this node. For blocks of other nodes, say what the network between them does.")
    yield from ("[network]", f"latency = {link.latency:.6g}", f"threads = {_REQUESTS}")
    yield f"bytes_per_second = {int(speed)}"
    yield from ("", "[memory]", f"bytes = {found.room}", f"threads = {cores}")
    yield from (f"{name} = {_rates(found.copies)}" for name in ("read", "write"))
    yield from ("", "[staging]", f"bytes = {found.room // (4 * calibration.ranks)}", f"threads = {cores}")
    yield f"decode_bytes_per_second = {int(found.decoding)}"


def _rates(values: tuple[tuple[int, float], ...]) -> str:
    return f"[{', '.join(f'[{count}, {int(rate)}]' for count, rate in values)}]"


def _lines(found: Calibration, name: str, day: date) -> Iterator[str]:
    link = next((each for each in found.sharing if each.ranks > 1), None)
    yield f"name = {_text(name)}"
    yield f"source = {_text(f'Measured by voxload plan calibrate on {day.isoformat()}.')}"
    yield from ("", "[node]", f"ranks = {found.ranks}", "", "[device]")
    yield f"kind = {_text(found.device)}"
    yield f"name = {_text(found.name)}"
    yield f"memory = {found.memory}"
    latency, speed = (link.latency, int(1 / max(link.seconds_per_byte, 1e-15))) if link else (0.0, 10**9)
    yield from ("", "[links.within]", f"latency = {latency:.6g}", f"bytes_per_second = {speed}")
    yield from ("", "# One node was there. For plans on several, say what the network between them does:")
    yield from ("# [links.between]", "# latency = 0.00002", '# bytes_per_second = "12.5GB"')
    yield from ("", "[calibration]", f"when = {_text(day.isoformat())}", f"torch = {_text(torch.__version__)}")
    yield f"ranks = {found.ranks}"
    yield f"overheads = {_numbers(found.overheads)}"
    for each in found.sharing:
        yield from ("", "[[calibration.sharing]]", f"ranks = {each.ranks}")
        yield from (f"{name} = {getattr(each, name):.6g}" for name in _SHARED)
    for points in found.kernels:
        yield from ("", "[[calibration.kernels]]", f"kind = {_text(points.kind)}")
        yield f"points = {_rows([(*point, s) for point, s in zip(points.points, points.seconds, strict=True)])}"


def _text(value: str) -> str:
    return json.dumps(value)  # what JSON writes of text is a basic string of TOML


def _numbers(values: Any) -> str:
    # Whole numbers as they are: a size that is rounded may lie on the other side of where kernels change.
    return f"[{', '.join(str(int(each)) if float(each).is_integer() else f'{each:.6g}' for each in values)}]"


def _rows(rows: Any) -> str:
    return "[\n" + "".join(f"    {_numbers(row)},\n" for row in rows) + "]"
