"""One rank of the agreement test: loads three epochs and prints what happened."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist

import voxload
from voxload.errors import UsageError

CASES = ("good", "swapped", "short", "changed", "left", "left apart", "skipped")
AT = 1
"""Place of the batch from which on some cases differ."""


class UncollatedError(Exception):
    """What a user's own function raises."""


class Failing:
    """Collates all batches but one."""

    def __init__(self, place: int | None) -> None:
        self._place = place
        self._seen = 0

    def __call__(self, samples: list[Any]) -> Any:
        """Return a batch."""
        self._seen += 1
        if self._seen - 1 == self._place:
            raise UncollatedError
        return torch.utils.data.default_collate(samples)


def main(folder: str) -> None:
    """Load one epoch for each case on every rank; in the bad ones rank 3 does otherwise than rank 2."""
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
    is_odd = data.grid.rank == 3
    if is_odd:
        order = {"swapped": [4, 5, 7, 6], "short": order[:2]}.get(case, order)
    loader = voxload.DataLoader(
        data, 1, sampler=order, collate_fn=Failing(AT if is_odd and case == "skipped" else None)
    )
    sums: list[int] = []
    error = ""
    try:
        if case.startswith("left"):
            _leave(loader, 1 if is_odd and case == "left apart" else 2)
        _walk(loader, sums, order, case)
    except UsageError as caught:
        error = str(caught)
    dist.barrier()
    return {"sums": sums, "error": error}


def _leave(loader: Any, after: int) -> None:
    """Take so many batches of an epoch, and no more."""
    batches = iter(loader)
    for _ in range(after):
        next(batches)


def _walk(loader: Any, sums: list[int], order: list[int], case: str) -> None:
    batches = iter(loader)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except UncollatedError:
            continue
        sums.append(int(batch[0].sum(dtype=torch.int64)))
        if case == "changed" and len(sums) == AT:
            order[AT:] = reversed(order[AT:])  # whose iterator goes on in what the list then holds


if __name__ == "__main__":
    main(sys.argv[1])
