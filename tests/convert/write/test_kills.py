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

from tests.convert.trees import tree
from tests.support import processes
from voxload.convert import ConvertOptions, Hints, Packing, StoredFormat, convert
from voxload.convert.plan.tiles import LIBRARY_BYTES
from voxload.convert.storage.compression import Parts
from voxload.convert.storage.protocol import Place
from voxload.convert.write.writer import VolumeWriter

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
        checksums=True,
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


class _Rounds:
    """Conversions that are killed at random moments and run again until they end; counts the kills.

    Parameters
    ----------
    src
        What is converted.
    stored
        Into what.
    seconds
        How long it takes undisturbed; no process is left alone for longer before `wanted` were killed.
    wanted
        Processes to kill.
    """

    def __init__(self, src: Path, stored: StoredFormat, seconds: float, *, wanted: int) -> None:
        self._src, self._stored, self._seconds, self._wanted = src, stored, seconds, wanted
        self._draw = random.Random(7)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["voxload.convert", __name__])
        self.kills = 0

    def run(self, out: Path) -> None:
        """Convert into `out`, from nothing to the end, and check that no recorded chunk is made again."""
        log = out.with_suffix(".log")
        seen, before, is_done = 0, set[tuple[str, tuple[int, ...]]](), False
        while not is_done:
            is_done = self._attempt(out, log)
            lines = [json.loads(line) for line in log.read_text().splitlines()[seen:]] if log.exists() else []
            seen += len(lines)
            twice = before & {(name, tuple(place)) for name, place in lines}
            assert not twice, "a chunk that was recorded as stored was made again"
            before = _recorded(out) if out.exists() else set()
        assert seen >= 3 * 6**3

    def _attempt(self, out: Path, log: Path) -> bool:
        """Return whether a process came to its end before it was killed."""
        started = self._context.Event()
        process = self._context.Process(target=_convert, args=(self._src, out, self._stored, log, started))
        process.start()
        assert started.wait(processes.LIMIT)
        process.join(self._draw.uniform(0, self._seconds) if self.kills < self._wanted else processes.LIMIT)
        if process.exitcode is None:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join(processes.LIMIT)
        if process.exitcode == -signal.SIGKILL:
            self.kills += 1
            return False
        assert process.exitcode == 0, "see what the process said"
        return True


@pytest.mark.parametrize(
    ("stored", "kills"),
    [
        (StoredFormat.ZARR, 3),
        *(pytest.param(stored, 20, marks=pytest.mark.long) for stored in StoredFormat),
    ],
)
def test_killed_at_random_moments(tmp_path: Path, stored: StoredFormat, kills: int) -> None:
    """However often and whenever it is killed, what was recorded is kept, and the end is as if nothing had been."""
    raw, expected = tmp_path / "raw", tmp_path / "expected"
    raw.mkdir()
    for number in range(3):
        counts = np.random.default_rng(number).poisson(3, (EXTENT, EXTENT, EXTENT, 2))
        np.save(raw / f"u{number}.npy", counts.astype("i2"))
    convert(raw, tmp_path / "first", options=_options(stored))  # kernels compile once on a machine
    began = time.perf_counter()
    convert(raw, expected, options=_options(stored))
    rounds = _Rounds(raw, stored, time.perf_counter() - began, wanted=kills)
    number = 0
    while rounds.kills < kills:
        out = tmp_path / f"out{number}"
        rounds.run(out)
        assert tree(out) == tree(expected)
        number += 1
