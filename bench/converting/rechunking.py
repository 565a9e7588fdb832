"""Rechunking: one universe into chunks, against the tools that people use for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.converting.copying import MEMORY, table
from bench.converting.task import Task
from bench.converting.turn import Contender, Turn, rounds
from bench.engining.outcome import Outcome, Sheet
from bench.harness.findings import Finding, at_least
from voxload.convert import ConvertOptions, plan_conversion
from voxload.units import format_bytes

FASTER = 2.0
CHUNK = 64


def rechunking(source: Path, task: Task) -> Outcome:
    """Measure both formats."""
    findings: list[Finding] = []
    sheets: list[Sheet] = []
    document: dict[str, object] = {}
    for stored, codec in (("hdf5", "gzip"), ("zarr", "lz4")):
        own = Contender(f"voxload to {stored}", "converting", (stored, str(CHUNK), codec, str(MEMORY)))
        peers, missing = _repack() if stored == "hdf5" else _zarr_peers(source, task)
        found = rounds([own, *peers], source, task.rounds, is_cold=task.is_cold)
        whole = sum(path.stat().st_size for path in source.iterdir())
        sheet = table(f"rechunk: {format_bytes(whole)} into {stored}, chunks of {CHUNK}^3, {codec}", found, whole, task)
        sheets.append(Sheet(sheet.title, "; ".join([sheet.caption, *missing]), sheet.columns, sheet.rows))
        document[stored] = {name: [asdict(turn) for turn in turns] for name, turns in found.items()} | {
            "not run": missing
        }
        if peers:
            ratios = _ratios(found[own.name], [found[peer.name] for peer in peers])
            findings.append(at_least(f"rechunk to {stored}: faster than the fastest", FASTER, ratios))
    return Outcome(tuple(findings), tuple(sheets), document)


def _ratios(own: Sequence[Turn], peers: Sequence[Sequence[Turn]]) -> tuple[float, ...]:
    """Return the fastest one's time over ours, round by round."""
    return tuple(min(turn.seconds for turn in turns) / mine.seconds for mine, *turns in zip(own, *peers, strict=True))


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
