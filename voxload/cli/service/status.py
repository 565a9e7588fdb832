"""``voxload serve status``: what a service keeps, and for whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from voxload.cli.terminal import Screen
from voxload.serve.asking import figures
from voxload.serve.place import service_path
from voxload.text import shown as printable
from voxload.units import format_bytes

EPILOG = "Example: voxload serve status --json"
"""Shown at the end of the command's help."""


def status(
    *,
    socket: Annotated[str, typer.Option(help="Path of the service's socket.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what the service of this node keeps, what it read, and who is connected."""
    found = figures(Path(service_path(socket)))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        Screen().print(shown(found))


def shown(found: dict[str, Any], *, before: dict[str, Any] | None = None) -> Group:
    """Return what people see of a service; with a look `before`, rates of what happened since."""
    if "tenants" in found:
        return Group(_tenants(found))
    parts: list[Table | str] = [_levels(found)]
    if found["jobs"]:
        parts.append(_jobs(found))
    if found["kept"]:
        parts.append(_kept(found))
    parts.append(_reads(found))
    if before is not None and before["boot"] == found["boot"]:
        parts.append(_rates(found, before))
    return Group(*parts)


def _table(title: str, names: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left")
    return table


def _levels(found: dict[str, Any]) -> Table:
    state = "draining" if found["is_draining"] else f"up {found['seconds']:.0f} s"
    table = _table(f"service {found['boot'][:8]}, {state}", ("level", "used", "of", "blocks"))
    memory, disk = found["memory"], found["disk"]
    table.add_row("memory", format_bytes(memory["used"]), format_bytes(memory["limit"]), str(memory["blocks"]))
    if disk["capacity"]:
        table.add_row("disk", format_bytes(disk["used"]), format_bytes(disk["capacity"]), str(disk["blocks"]))
    return table


def _tenants(found: dict[str, Any]) -> Table:
    names = ("user", "group", "may use", "quota", "share", "reads at once", "jobs", "used", "blocks")
    table = _table(f"service {found['boot'][:8]} of {format_bytes(found['memory']['capacity'])} for all users", names)
    for one in found["tenants"]:
        memory = one.get("keeps", {}).get("memory", {"used": 0, "blocks": 0})
        sizes = (format_bytes(one["memory"]), format_bytes(one["quota"]), f"{one['share']:g}")
        counts = (str(one["reads_at_once"]), str(one["jobs"]), format_bytes(memory["used"]), str(memory["blocks"]))
        table.add_row(str(one["uid"]), str(one["gid"]), *sizes, *counts)
    return table


def _jobs(found: dict[str, Any]) -> Table:
    names = ("job", "user", "process", "blocks", "uses to come", "from memory", "past it", "stalled")
    table = _table("jobs", names)
    for job in found["jobs"]:
        counts = (str(job[name]) for name in ("uid", "pid", "blocks", "ahead", "hits", "misses"))
        table.add_row(printable(job["name"]), *counts, f"{job['stall_seconds']:.1f} s")
    return table


def _kept(found: dict[str, Any]) -> Table:
    table = _table("kept", ("name", "there", "of", "bytes", "for"))
    for one in found["kept"]:
        left = "good" if one["seconds"] is None else f"{one['seconds']:.0f} s"
        counts = (str(one["there"]), str(one["blocks"]), format_bytes(one["bytes"]), left)
        table.add_row(printable(one["name"]), *counts)
    return table


def _reads(found: dict[str, Any]) -> str:
    reads = found["reads"]
    return (
        f"{reads['done']} reads, {reads['from_disk']} of them from disk, of {format_bytes(reads['storage_bytes'])} "
        f"of the storage; {reads['failed']} failed, {reads['waited_for']} were waited for"
    )


def _rates(found: dict[str, Any], before: dict[str, Any]) -> str:
    seconds = max(1e-9, found["seconds"] - before["seconds"])
    storage = (found["reads"]["storage_bytes"] - before["reads"]["storage_bytes"]) / seconds
    hits = (found["jobs_met"]["hit_bytes"] - before["jobs_met"]["hit_bytes"]) / seconds
    return f"{format_bytes(max(0, int(storage)))}/s from the storage, {format_bytes(max(0, int(hits)))}/s out of memory"
