"""One rank of the agreement test: loads three epochs and prints what happened."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist

import voxload
from voxload.errors import UsageError

CASES = ("good", "swapped", "short")


def main(folder: str) -> None:
    """Load one epoch for each case on every rank; in the bad ones rank 3 draws other samples than rank 2, or fewer."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((2, 1, 1))
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar", grid=grid)
    found = {case: _load(data, case) for case in CASES}
    data.close()
    # One write a rank: torchrun joins the ranks' output, and two writes would interleave.
    sys.stdout.write(json.dumps({"rank": grid.rank, **found}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def _load(data: voxload.VolumeDataset, case: str) -> dict[str, Any]:
    """Return the sums of the blocks that arrived, and the error that ended the epoch."""
    order = [0, 1, 2, 3] if data.grid.group == 0 else [4, 5, 6, 7]
    if data.grid.rank == 3:
        order = {"good": order, "swapped": [4, 5, 7, 6], "short": order[:2]}[case]
    sums: list[int] = []
    error = ""
    try:
        sums.extend(int(batch[0].sum(dtype=torch.int64)) for batch in voxload.DataLoader(data, 1, sampler=order))
    except UsageError as caught:
        error = str(caught)
    dist.barrier()
    return {"sums": sums, "error": error}


if __name__ == "__main__":
    main(sys.argv[1])
