"""One rank of the test of catalogues that grow: epochs over a copy of the catalogue that lags, is damaged, or goes on.

PLACE SPATIAL: a rank's copy of the catalogue has its number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist

import voxload
from tests.support.growing import number_of
from voxload.errors import VoxloadError


def main(place: Path, spatial: tuple[int, int, int]) -> None:
    """Load epochs while rank 0 moves generations to where each rank sees them; print what came."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env(spatial)
    rank = grid.rank
    own = place / f"seen-by-{rank}.parquet"

    def see(*generations: int | bytes) -> None:
        """Let each rank see a generation, or something else."""
        seen = generations[rank % len(generations)]
        content = (place / f"{seen}.parquet").read_bytes() if isinstance(seen, int) else seen
        own.with_suffix(".part").write_bytes(content)
        own.with_suffix(".part").replace(own)
        dist.barrier()

    see(1)
    data = voxload.VolumeDataset(own, targets="t", grid=grid, halo=1, follow=True)
    found: dict[str, Any] = {"rank": rank}
    for name, words in (("plain", {}), ("cached", {"cache": voxload.Cache(memory="1MiB")})):
        see(1)
        data.refresh(1)
        loader = voxload.DataLoader(data, 1, shuffle=True, **words)  # type: ignore[arg-type] # a cache
        epochs = found.setdefault(name, [])
        epochs.append(_epoch(loader))
        see(2, 3, 3, 3)  # rank 0 sees less than the others
        epochs.append(_epoch(loader))
        see(3, 3, 3, 2)  # and now another one, which had seen more before
        epochs.append(_epoch(loader))
        see(3)
        half: Iterator[Any] = iter(loader)
        next(half)
        state = loader.state_dict()
        see(4)
        if rank != 1:  # while one is held anywhere, the samples stay
            del half
        epochs.append(_epoch(loader))
        half = iter(())
        epochs.append(_epoch(loader))
        see(4, b"damaged", 4, 4)
        epochs.append(_epoch(loader))
        see(4)
        epochs.append(_epoch(loader))
        loader.load_state_dict(state if rank else loader.state_dict())
        epochs.append(_epoch(loader))
        if name == "cached":
            found |= {kind: one.fetches for kind, one in loader.stats().sources.items()}
        loader.load_state_dict(state)
        epochs.append(_epoch(loader))
        loader.close()
    data.close()
    # One write a rank: the parent reads whole lines.
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def _epoch(loader: voxload.DataLoader) -> list[Any]:
    """Return the generation and the samples of an epoch, or what it raised."""
    samples = []
    try:
        for volumes, targets in loader:
            inner = volumes[0, :, 1:-1, 1:-1, 1:-1]  # beyond the sample there is nothing
            assert number_of(inner) == targets[0, 0]
            samples.append(int(targets[0, 0]))
    except VoxloadError as error:
        return [type(error).__name__, str(error)]
    return [cast("voxload.VolumeDataset", loader.dataset).generation, samples]


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(map(int, sys.argv[2].split(","))))  # type: ignore[arg-type] # three
