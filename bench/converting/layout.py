"""Layout: what the ranks of a grid decode of a converted universe for what they want, and how large files are."""

from __future__ import annotations

from contextlib import closing
from math import prod
from pathlib import Path
from typing import Any

from bench.converting.samples import make_cubes
from bench.converting.turn import Task, remove, size_of
from bench.harness.findings import Finding, Outcome, Sheet, at_least, at_most
from voxload.convert import Compression, ConvertOptions, Readers, convert
from voxload.geometry import Boundary, Halo
from voxload.grid import ProcessGrid
from voxload.readers import Location, block_cost, open_reader
from voxload.units import format_bytes

AMPLIFICATION = {0: 1.02, 1: 1.15}
"""Decoded bytes for each wanted one that were asked for at most, by halo."""
FILE_MIB = (64.0, 512.0)
SPATIAL = (2, 2, 2)
LARGE = 512
"""Extent that the claim is about: a smaller universe fills no file, and its halo is a larger part of a block."""


def layout(folder: Path, task: Task) -> Outcome:
    """Convert for both halos and count."""
    source, scratch = make_cubes(folder, 1, task.extent), folder / "laid-out"
    findings: list[Finding] = []
    rows: list[tuple[str, ...]] = []
    document: dict[str, Any] = {}
    for halo, wanted in AMPLIFICATION.items():
        remove(scratch)
        for boundary in (Boundary.ZERO, Boundary.PERIODIC) if halo else (Boundary.ZERO,):
            readers = Readers(SPATIAL, Halo.parse(halo), boundary)
            convert(source, scratch, options=ConvertOptions(readers=readers, compression=Compression(task.compression)))
            volumes = sorted(scratch.glob("*.zarr"))
            name = f"halo {halo}, {boundary.value}"
            factors = tuple(_amplification(volume, readers) for volume in volumes)
            sizes = [path.stat().st_size / 2**20 for path in scratch.glob("*.zarr/full/c/**/*") if path.is_file()]
            if task.extent >= LARGE and boundary is Boundary.ZERO:
                findings.append(at_most(f"layout: decoded for each wanted byte, {name}", wanted, factors))
            if task.extent >= LARGE:
                findings.append(at_least(f"layout: MiB of the smallest file, {name}", FILE_MIB[0], (min(sizes),)))
                findings.append(at_most(f"layout: MiB of the largest file, {name}", FILE_MIB[1], (max(sizes),)))
            rows.append((name, f"{max(factors):.4f}", f"{len(sizes)}", f"{min(sizes):.0f} to {max(sizes):.0f} MiB"))
            document[name] = {"amplification": factors, "files": sizes}
            remove(scratch)
    caption = "" if task.extent >= LARGE else f"nothing is asked of universes below {LARGE}^3"
    title = f"layout: {format_bytes(size_of(source))} for a grid of (2, 2, 2)"
    sheet = Sheet(title, caption, ("readers", "amplification", "files", "sizes"), tuple(rows))
    return Outcome(tuple(findings), (sheet,), document)


def _amplification(volume: Path, readers: Readers) -> float:
    """Return the decoded bytes of the chunks that all ranks touch over those of their blocks with halo."""
    decoded = needed = 0
    with closing(open_reader(Location(str(volume), dataset="full"))) as reader:
        info = reader.describe()
        for rank in range(prod(SPATIAL)):
            grid = ProcessGrid(spatial=SPATIAL, world_size=prod(SPATIAL), rank=rank)
            box = grid.block(info.spatial).expand(readers.halo)
            decoded += block_cost(reader, box, boundary=readers.boundary).decoded_bytes
            needed += box.size * info.shape[0] * info.native_dtype.itemsize
    return decoded / needed
