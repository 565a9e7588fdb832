"""Entrants: which peers can take part here, and why the others cannot."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import cast

from bench.reading.contender import Entry, Job, Peer


@dataclass(frozen=True, slots=True)
class Entrant:
    """A module of contenders and what it needs."""

    module: str
    """Its name below bench.reading.peers."""
    needs: str
    """The package without which it cannot run."""
    peers: tuple[str, ...]
    """The contenders that it gives."""


ENTRANTS = (
    Entrant("voxload", "voxload", ("voxload",)),
    Entrant("hdf5", "h5py", ("h5py", "h5py-direct")),
    Entrant("hdf5_processes", "h5py", ("h5py-processes",)),
    Entrant("numpy_memmap", "numpy", ("numpy",)),
    Entrant("zarr_python", "zarr", ("zarr", "zarr-fused", "zarrs")),
    Entrant("ts", "tensorstore", ("tensorstore",)),
    Entrant("memcpy", "numpy", ("memcpy",)),
)

PEERS = tuple(peer for entrant in ENTRANTS for peer in entrant.peers if peer != "voxload")


def absent(wanted: tuple[str, ...]) -> list[str]:
    """Return one line for each peer that was wanted and is not installed."""
    lines = [
        f"{', '.join(entrant.peers)}: {entrant.needs} is not installed"
        for entrant in ENTRANTS
        if set(entrant.peers) & set(wanted) and not _is_installed(entrant.needs)
    ]
    if "zarrs" in wanted and not _is_installed("zarrs"):
        lines.append("zarrs: zarrs is not installed")
    if "zarr-fused" in wanted and not _has_fused():
        lines.append("zarr-fused: this version of zarr has no fused pipeline")
    return lines


def entries(job: Job, wanted: tuple[str, ...]) -> list[Entry]:
    """Return voxload and every wanted contender that can read the job's sample."""
    found: list[Entry] = []
    for entrant in ENTRANTS:
        if _is_installed(entrant.needs):
            peer = cast("Peer", importlib.import_module(f"bench.reading.peers.{entrant.module}"))
            found += [entry for entry in peer.entries(job) if entry.peer in ("voxload", *wanted)]
    return found


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _has_fused() -> bool:
    return bool(importlib.import_module("bench.reading.peers.zarr_python").HAS_FUSED)
