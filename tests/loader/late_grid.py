"""One rank of the late grid's test: makes loaders first, then joins the job, and prints what it drew and read."""

from __future__ import annotations

import json
import os
import pickle
import sys
from typing import Any

import torch.distributed as dist

import voxload


def main(folder: str, meeting: str) -> None:
    """Load two epochs of blocks of a grid that is three counts; ranks are told to init_process_group alone."""
    rank, world = (int(os.environ.pop(name)) for name in ("RANK", "WORLD_SIZE"))
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar", grid=(2, 1, 1))
    loader = voxload.DataLoader(data, shuffle=True, drop_last=True)
    is_open = not data.is_grid_known
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    copied = pickle.loads(pickle.dumps(data))  # noqa: S301 - made here
    found: dict[str, Any] = {
        "rank": rank,
        "is_open": is_open,
        "is_copy_known": copied.is_grid_known,
        "length": len(loader),
        "grid": [data.grid.spatial, data.grid.world_size, data.grid.rank],
        "sums": [[int(batch[0].sum()) for batch in loader] for _ in range(2)],
        "shape": list(next(iter(loader))[0].shape),
    }
    # One write a rank: torchrun joins the ranks' output, and two writes would interleave.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    data.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
