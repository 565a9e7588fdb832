"""Rechunking: one universe into chunks, against the tools that people use for it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.converting.copying import MEMORY, table
from bench.converting.samples import make_cubes
from bench.converting.turn import Contender, Task, document, in_rounds, seconds, size_of
from bench.harness.findings import Finding, Outcome, Sheet, at_least
from voxload.convert import ConvertOptions, plan_conversion
from voxload.units import format_bytes

FASTER = 2.0
CHUNK = 64


def rechunking(folder: Path, task: Task) -> Outcome:
    """Measure both formats."""
    source = make_cubes(folder, 1, task.extent)
    whole = size_of(source)
    findings: list[Finding] = []
    sheets: list[Sheet] = []
    figures: dict[str, Any] = {}
    others: tuple[float, ...] = ()
    for stored, codec in (("hdf5", "gzip"), ("zarr", "lz4")):
        own = Contender(f"voxload to {stored}", "converting", (stored, str(CHUNK), codec, str(MEMORY)))
        peers, missing = _repack() if stored == "hdf5" else _zarr_peers(source, task)
        found = in_rounds([own, *peers], source, task)
        sheet = table(f"rechunk: {format_bytes(whole)} into {stored}, chunks of {CHUNK}^3, {codec}", found, whole, task)
        sheets.append(replace(sheet, caption="; ".join([sheet.caption, *missing])))
        figures[stored] = document(found) | {"not run": missing}
        others += found.others
        if peers:  # the fastest one's time over ours, round by round
            times = found.figures(seconds)
            each = (times.ratios(peer.name, own.name) for peer in peers)
            ratios = tuple(map(min, zip(*each, strict=True)))
            findings.append(at_least(f"rechunk to {stored}: faster than the fastest", FASTER, ratios))
    return Outcome(tuple(findings), tuple(sheets), figures, others)


def _repack() -> tuple[list[Contender], list[str]]:
    if shutil.which("h5repack") is None:
        return [], ["h5repack is not installed (package hdf5-tools): not compared"]
    return [Contender("h5repack", "repacking", (str(CHUNK),))], []


def _zarr_peers(source: Path, task: Task) -> tuple[list[Contender], list[str]]:
    """Return the contenders that run here, and why others do not."""
    # The shards that voxload makes by itself, so that files are of the same size.
    options = ConvertOptions(chunks=(CHUNK, CHUNK, CHUNK))
    shards = plan_conversion(source, source.parent / "planned", options=options).volumes[0].shards
    if shards is None:
        raise RuntimeError("a Zarr volume without shards")
    extents = ",".join(map(str, shards[1:]))
    peers = [
        Contender("zarr-python, shards", "looping", (str(CHUNK), extents)),
        Contender("zarr-python, a file a chunk", "looping", (str(CHUNK), "")),
    ]
    if not task.rechunker:
        return peers, ["rechunker needs a zarr before 3 (see --rechunker): not compared"]
    asked = subprocess.run([task.rechunker, "-c", "import rechunker"], capture_output=True, text=True, check=False)
    if asked.returncode:
        return peers, [f"rechunker cannot run: {asked.stderr.strip().splitlines()[-1]}"]
    words = (str(CHUNK), str(MEMORY))
    return [*peers, Contender("rechunker, a file a chunk", "rechunking", words, task.rechunker)], []
