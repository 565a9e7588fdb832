"""Every script of bench/ runs to its end at a small size: its figures mean nothing there, an error does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support import processes

ROOT = Path(__file__).parents[2]
PRINTED = {
    "chunk_cache": "--size 128 --rounds 1",
    "chunk_table": "--rounds 1",
    "cold": "--size 256 --volumes 8",
    "counted": "--shrink 16 --samples 2 --epochs 1",
    "crops": "--size 128 --crops 64 --rounds 1 --wanted 1 --layouts hdf5-gzip",
    "dispatch": "--sizes 16 --rounds 1",
    "emulation": "--kinds sleep --durations 2ms --seconds 0.1",
    "following": "--samples 50 --rounds 1",
    "generations": "--rounds 1",
    "locality": "--size 8 --samples 24 --epochs 3 --policies lru",
    "layerwise": "--machine lassen --networks resnet --turns 1",
    "paradl": "",
    "plan": "--machine lassen --networks resnet --most 2",
    "own_bytes": "--size 64 --ranks 0 7",
    "peers": "--rounds 1",
    "placement": "--groups 8 --samples 256 --epochs 2 --policies clairvoyant lru",
    "read_memory": "--size 128 --threads 1",
    "read_threads": "--rounds 1",
    "resume": "--samples 60 --place 20 --runs 1",
    "serve": "--size 16 --samples 8 --epochs 1 --rounds 4",
    "shards": "--pictures 40 --size 32 --rounds 1 --workers 1",
    "startup": "--rounds 1",
    "tiers": "--size 16 --blocks 2 --rounds 1",
}
"""Scripts that print their rows, and the arguments of a small run."""
WRITTEN = {
    "convert": "--task copy --cubes 1 --extent 32 --rounds 1",
    "engine": "--size 32 --rounds 1 --steps 1 --only one-rank,two-ranks",
    "loop": "--quick --stores hdf5-gzip --steps 4",
    "loader": "--quick --cases hdf5-gzip --size 32 --samples 2",
    "prefetch": "--quick --contenders clairvoyant,torch --samples 4 --size 16 --epochs 2",
    "readers": "--quick --size 64 --chunks 32 --formats hdf5-gzip,zarr-raw --budget 0.1",
}
"""Scripts that write their figures into a file."""
APART = {"__init__", "dlio", "documented", "gpu", "gpu_page", "lion", "networks"}
"""No scripts, and those that need what is installed nowhere here, or that tests of their own run."""


def _run(name: str, words: list[str]) -> str:
    """Return what a script printed that ended with 0, or with 1: a figure that was not reached."""
    command = [sys.executable, f"bench/{name}.py", *words]
    done = processes.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in {0, 1}, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    printed: str = done.stdout
    return printed


def test_every_script_is_here() -> None:
    """One that is new is, too."""
    assert {path.stem for path in (ROOT / "bench").glob("*.py")} == {*PRINTED, *WRITTEN, *APART}


@pytest.mark.long
@pytest.mark.parametrize("name", PRINTED)
def test_a_script_prints_its_rows(name: str) -> None:
    """As JSON, one after the other."""
    rows = json.loads(_run(name, [*PRINTED[name].split(), "--json"]))
    assert rows


@pytest.mark.long
@pytest.mark.parametrize("name", WRITTEN)
def test_a_script_writes_its_figures(name: str, tmp_path: Path) -> None:
    """Into the file that it is given, beside the table that it prints."""
    path = tmp_path / "figures.json"
    assert _run(name, [*WRITTEN[name].split(), "--json", str(path)]).strip()
    assert json.loads(path.read_text())
