"""One rank of those whose samples are dealt: lives through all lives and prints what came of each.

FOLDER BLOCKS: of samples, and how many ranks share one.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import voxload
from tests.loader.caching.dealt_world import LIVES, Epochs, Life, epochs, refusals, resumed
from tests.loader.caching.shared_faults import shared_tiers
from tests.support.growing import number_of

MEASURED = Life("measured", lengths=(None,) * 6, epochs=6)
"""The one whose bytes are compared with what is predicted."""


def main(folder: Path, blocks: int) -> None:
    """Live through everything."""
    faulthandler.dump_traceback_later(120, exit=True)  # one that hangs says where
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    grid = voxload.ProcessGrid.from_env((blocks, 1, 1))
    data = voxload.VolumeDataset(f"{folder}/*.npy", grid=grid)
    found: dict[str, Any] = {"rank": grid.rank, "group": grid.group, "lives": {}}
    lives = [replace(life, folder=str(folder / f"disk-{blocks}")) for life in LIVES]
    lives += [replace(life, name="disk again") for life in lives if life.disk]
    for life in lives:
        loader = life.loader(data)
        found["lives"][life.name] = {"plain": life.plain(data), "dealt": epochs(loader, data, life)}
        loader.close()
    for name, anew in (("resumed anew", True), ("resumed", False)):
        life = Life(name, lengths=(None, None, None))
        found["lives"][name] = {"plain": life.plain(data), "dealt": resumed(life, data, anew=anew)}
    for locality in (None, "batch"):
        loader = MEASURED.loader(data, locality)
        epochs(loader, data, MEASURED)
        line = shared_tiers(loader).line
        found[f"bytes {locality}"] = {
            "sources": {kind: one.nbytes for kind, one in loader.stats().sources.items()},
            "block": data.layout(0)[0].nbytes,
            "sizes": line.sizes.tolist(),
            "rooms": [room.memory for room in line.rooms],
        }
        loader.close()
    found["lives"]["growing"] = growing(folder / "growing", grid)
    found["refused"] = dict(refusals(data))
    data.close()
    # One write a rank: the parent reads whole lines.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def growing(place: Path, grid: voxload.ProcessGrid) -> dict[str, Epochs]:
    """Return the samples of a catalogue's epochs that grows, dealt and as they are drawn."""
    seen = place / "seen.parquet"
    found: dict[str, Epochs] = {"dealt": [], "plain": []}
    loaders: dict[str, voxload.DataLoader] = {}
    for generation in (1, 1, 2, 2):
        if grid.rank == 0:
            seen.write_bytes((place / f"{generation}.parquet").read_bytes())
        dist.barrier()
        if not loaders:
            data = voxload.VolumeDataset(seen, targets="t", grid=grid, follow=True)
            loaders["dealt"] = voxload.DataLoader(
                data, 2, shuffle=True, cache=voxload.Cache(memory="1MiB", locality="batch")
            )
            loaders["plain"] = voxload.DataLoader(data, 2, shuffle=True)
        for kind, loader in loaders.items():
            steps = []
            for volumes, targets in loader:
                steps.append([number_of(volume) for volume in volumes])
                assert steps[-1] == targets[:, 0].tolist()
            found[kind].append(steps)
    for loader in loaders.values():
        loader.close()
    data.close()
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
