"""One of two ranks of test_own.py: keeps the laws with the other one's help, and says what came from where."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial

import torch.distributed as dist

from tests.laws.bench_loader import check_loader
from voxload.benchmark.loaders.own import KIND
from voxload.benchmark.loaders.protocol import Task, epoch_indices
from voxload.benchmark.loaders.volumes import dataset_of
from voxload.benchmark.workload.workload import Length, Samples, Share, Supply, Workload
from voxload.grid import ProcessGrid
from voxload.loader.caching import prefetcher
from voxload.prefetch.cost import CostModel
from voxload.prefetch.planning.limits import Limits

EPOCHS = 5


def main(location: str, meeting: str, rank: int) -> None:
    """Join the other rank, load, and print one line of JSON."""
    # The storage is read once more where a peer is late, or slow by what was measured: both are the machine's doing.
    words: dict[str, Callable[..., object]] = {
        "Limits": partial(Limits, patience=600.0, strikes=10**6),
        "CostModel": partial(CostModel, handicap=math.inf),
    }
    for name, word in words.items():
        setattr(prefetcher, name, word)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    supply = Supply(memory=1 << 20, peers="node")
    workload = Workload(Samples(location), Share(batch_size=2), Length(EPOCHS), supply)
    grid = ProcessGrid((1, 1, 1), 2, rank)
    with closing(dataset_of(workload, grid)) as data:
        task = Task(workload, grid, data, (), node_ranks=2)
        check_loader(KIND, task, cache(lambda index: data[index][0]))
        drawn = [epoch_indices(workload.share, len(data), grid, number) for number in range(EPOCHS)]
        with closing(KIND.build(task)) as loader:
            for number, indices in enumerate(drawn):
                for _ in loader.epoch(number, indices):
                    dist.barrier()  # ranks train in step: one that runs ahead reads what the other has not got yet
            sources = loader.counts()["sources"]
            dist.barrier()
    print(json.dumps({"drawn": drawn, "blocks": {kind: told["blocks"] for kind, told in sources.items()}}))  # noqa: T201 - the test reads it
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
