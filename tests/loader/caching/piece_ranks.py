"""One rank of four that share pieces: compares its batches with those without a cache, and prints what came of it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from functools import partial
from typing import Any

import torch.distributed as dist

import voxload
from tests.loader.caching.piece_kinds import EVEN, are_same, epochs_of, opened, words_of
from voxload.loader.caching import pieces, prefetcher
from voxload.prefetch.cost import CostModel
from voxload.prefetch.planning.limits import Limits

CASES = (
    ("moved cube", "shuffled", "auto", 0),
    ("moved cube", "shuffled", "tcp", 1),
    ("turned crop", "sequential", "auto", 0),
    ("centred crop", "shuffled", "node", 0),
    ("random patches", "shuffled", "auto", 1),
    ("padded crop", "sequential", "auto", 0),
    ("windows", "sequential", "auto", 1),
    ("unequal scans", "sequential", "auto", 1),
)
EPOCHS = 4


def main(folder: str) -> None:
    """Load some epochs of each case, with and without a cache."""
    dist.init_process_group("gloo")
    pieces._LEAST = 2**8  # as small beside these samples as pieces are beside large ones
    # On a machine that does much else a peer may be slow: here nobody goes to the storage for that.
    patient: Any = prefetcher
    patient.Limits = partial(Limits, patience=600.0, slow=600.0)
    patient.CostModel = partial(CostModel, grace=600.0)
    grid = voxload.ProcessGrid.from_env((2, 1, 1))
    found = {f"{case}": _compared(folder, grid, *case) for case in CASES}
    sys.stdout.write(json.dumps({"rank": grid.rank, "cases": found}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def _compared(folder: str, grid: Any, kind: str, order: str, peers: str, halo: int) -> dict[str, Any]:
    """Return whether both streams are the same, and how many pieces all groups of this rank's line read."""
    streams, loads = [], [0, 0]
    for cache in (None, voxload.Cache(memory="16MiB", peers=peers)):
        data = opened(folder, kind, halo, grid)
        words = words_of(order, data, 2 if kind in EVEN else 1)
        if order == "shuffled":
            words = {"batch_size": words["batch_size"], "shuffle": True}
        with closing(voxload.DataLoader(data, cache=cache, **words)) as loader:
            streams.append(epochs_of(loader, (None,) * EPOCHS, dist.barrier))  # as training keeps them in step
            if cache is not None and loader._pipeline is not None and loader._pipeline.prefetcher is not None:
                loads = [loader.stats().sources["storage"].fetches, loader._pipeline.prefetcher.kept.units.count]
            dist.barrier()
        data.close()
    everyone: list[Any] = [None] * grid.world_size
    dist.all_gather_object(everyone, loads[0])
    return {
        "same": are_same(streams[1], streams[0]),
        "read": sum(everyone[rank] for rank in grid.line_ranks),
        "units": loads[1],
    }


if __name__ == "__main__":
    main(sys.argv[1])
