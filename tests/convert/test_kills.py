"""SIGKILL at random moments: the result is the undisturbed one, bit for bit, and no recorded chunk is made twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voxload.convert import ConvertOptions, Hints, Packing, StoredFormat, convert
from voxload.convert.compression import Parts
from voxload.convert.storage import Place
from voxload.convert.tiles import LIBRARY_BYTES
from voxload.convert.writer import VolumeWriter

KILLS = 20
EXTENT = 96


def _options(stored: StoredFormat) -> ConvertOptions:
    """Return options by which every cube takes six steps."""
    return ConvertOptions(
        format=stored,
        hints=Hints("DHWC"),
        chunks=(16, 16, 16),
        pack=Packing.NEVER,
        max_memory=LIBRARY_BYTES + 2**24,
        workers=2,
    )


def _convert(src: Path, dst: Path, stored: StoredFormat, log: Path, started: Any) -> None:
    """Convert, and write down every chunk that is stored, by name of the volume and place."""
    append = VolumeWriter.append
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def noted(writer: VolumeWriter, chunks: Sequence[tuple[Place, Parts]]) -> None:
        for place, _ in chunks:
            os.write(descriptor, f"{json.dumps([writer._manifest.name, list(place)])}\n".encode())
        append(writer, chunks)

    VolumeWriter.append = noted  # type: ignore[method-assign, assignment] # in a process of its own
    started.set()
    convert(src, dst, options=_options(stored))


def _recorded(out: Path) -> set[tuple[str, tuple[int, ...]]]:
    """Return the chunks that records of unfinished volumes name, whole lines alone, and those of complete ones."""
    found = set()
    for ledger in out.glob(".*.progress"):
        lines = ledger.read_bytes().split(b"\n")[:-1]
        if lines and lines[0]:  # else it was killed while it wrote the first line, and nothing is recorded
            name, steps = json.loads(lines[0])["name"], lines[1:]
            found |= {(name, tuple(chunk[:4])) for step in steps for chunk in json.loads(step)["chunks"]}
    places = [(0, d, h, w) for d in range(6) for h in range(6) for w in range(6)]
    for volume in out.glob("*.*"):
        if not volume.name.startswith(".") and volume.suffix in {".zarr", ".h5"}:
            found |= {(volume.stem, place) for place in places}
    return found


def _tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("stored", list(StoredFormat))
def test_killed_at_random_moments(tmp_path: Path, stored: StoredFormat) -> None:
    """However often and whenever it is killed, what was recorded is kept, and the end is as if nothing had been."""
    (tmp_path / "raw").mkdir()
    for number in range(3):
        counts = np.random.default_rng(number).poisson(3, (EXTENT, EXTENT, EXTENT, 2))
        np.save(tmp_path / f"raw/u{number}.npy", counts.astype("i2"))
    began = time.perf_counter()
    convert(tmp_path / "raw", tmp_path / "expected", options=_options(stored))
    undisturbed = time.perf_counter() - began
    out, log = tmp_path / "out", tmp_path / "log"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["voxload.convert", __name__])
    draw, kills, seen, before = random.Random(7), 0, 0, set[tuple[str, tuple[int, ...]]]()
    while True:
        started = context.Event()
        process = context.Process(target=_convert, args=(tmp_path / "raw", out, stored, log, started))
        process.start()
        assert started.wait(60)
        process.join(draw.uniform(0, undisturbed / 2) if kills < KILLS else 120)
        is_done = process.exitcode is not None
        if not is_done:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join(60)
            kills += 1
        lines = [json.loads(line) for line in log.read_text().splitlines()[seen:]] if log.exists() else []
        seen += len(lines)
        twice = before & {(name, tuple(place)) for name, place in lines}
        assert not twice, "a chunk that was recorded as stored was made again"
        if is_done:
            assert process.exitcode == 0
            break
        before = _recorded(out) if out.exists() else set()
    assert _tree(out) == _tree(tmp_path / "expected")
    assert seen >= 3 * 6**3
