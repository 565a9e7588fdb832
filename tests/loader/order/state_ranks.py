"""One rank of the test of killed jobs: trains an epoch, saves as it goes, and dies on its way or comes to the end.

torchrun --nproc-per-node=4 tests/loader/order/state_ranks.py FOLDER PLACE SPATIAL STEPS
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import voxload


def main(folder: str, place: Path, spatial: tuple[int, int, int], steps: int) -> None:
    """Go on from the state in `place`, if there is one; write what was got, and die behind so many steps."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env(spatial)
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC", targets="unitPar", grid=grid)
    numbers = {tuple(data.read_targets(index).tolist()): index for index in range(len(data))}  # type: ignore[union-attr] # there are targets
    loader = voxload.DataLoader(data, 1, shuffle=True, generator=torch.Generator().manual_seed(6))
    saved = place / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    for step, (_, targets) in enumerate(loader, 1):
        with (place / f"{grid.world_size}-{grid.rank}").open("a") as file:
            file.write(f"{numbers[tuple(targets[0].tolist())]}\n")
        dist.barrier()
        if grid.rank == 0:
            saved.with_suffix(".part").write_text(json.dumps(loader.state_dict()))
            saved.with_suffix(".part").rename(saved)
        dist.barrier()
        if step == steps:
            os.kill(os.getpid(), signal.SIGKILL)
    loader.close()
    data.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), tuple(map(int, sys.argv[3].split(","))), int(sys.argv[4]))  # type: ignore[arg-type] # three of them
