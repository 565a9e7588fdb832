"""Claim: a loader of patches of one large volume gives 1,000 crops of 64 x 64 x 8 a second on two cores.

The volume is 512^3 int16 counts in chunks of 64^3, in the page cache; crops lie anywhere, and come in batches of 16.
voxload's loader stands there as it is, once more with room for the volume's decoded chunks, and with a cache that
holds its pieces. Beside it stand torch's with two worker processes that cut each crop out of a Zarr array by
zarr-python, or by tensorstore with room for as many decoded chunks in each, where it is installed, and MONAI's
RandSpatialCrop on the volume that was loaded whole before: it decodes nothing, and holds all voxels. Each loader has
run before, so that what it keeps is there. Runs are interleaved; printed are medians of crops a second. The few
batches that a loader has ready when a run begins are too few to matter. The exit status is 1 when one of voxload's
rows gives fewer than --wanted.

    python bench/crops.py [--folder DATA] [--size 512] [--rounds 5] [--crops 2048] [--wanted 1000] [--json]
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import voxload
from bench.harness.samples import Sample, counts
from bench.harness.script import finish, folder, parser
from voxload.benchmark.cold.pagecache import warm
from voxload.benchmark.measure.turns import Bystanders, in_turns, seconds
from voxload.geometry import Box
from voxload.readers import set_kept_chunks
from voxload.readers.chunks.chunkcache import KEPT_BYTES

LAYOUTS = ("zarr-blosc-lz4", "zarr-gzip", "zarr-sharded-raw", "hdf5-gzip")
CHUNK, SHAPE, BATCH = 64, (64, 64, 8), 16
ROOM = 2**28 + 2**20
"""Bytes of decoded chunks that a process may keep: of the whole volume of 512^3, and what counts beside them."""
OWN, OWN_ROOM = "voxload, 2 threads", "voxload, 2 threads, room for decoded chunks"


@dataclass(frozen=True, slots=True)
class Row:
    """How many crops one way of cutting gives."""

    layout: str
    contender: str
    crops_per_second: float
    """Median."""
    to_voxload: float
    """Times as many as voxload gives in the same rounds."""
    bystanders: float
    """Cores that others kept busy meanwhile."""


class Crops(Dataset[torch.Tensor]):
    """Crops at random places, by an array that is opened where it is used."""

    def __init__(self, open_array: Callable[[], Any], size: int, count: int) -> None:
        self._open = open_array
        self._array: Any = None
        self._starts = np.random.default_rng(0).integers(0, [size + 1 - extent for extent in SHAPE], (count, 3))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._array is None:
            self._array = self._open()
        slices = tuple(slice(lo, lo + extent) for lo, extent in zip(self._starts[index], SHAPE, strict=True))
        return torch.from_numpy(np.ascontiguousarray(self._array[slices]))[None]


def by_zarr(path: str, name: str) -> Any:
    """Return an array of zarr-python."""
    return zarr.open_group(path, mode="r")[name] if name else zarr.open_array(path, mode="r")


def by_tensorstore(path: str, name: str) -> Any:
    """Return an array of tensorstore that numpy may slice."""
    import tensorstore  # noqa: PLC0415 - where it is installed

    kvstore = {"driver": "file", "path": f"{path}/{name}" if name else path}
    pool = {"cache_pool": {"total_bytes_limit": ROOM}}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": kvstore, "context": pool}, read=True).result()
    return _Read(opened)


class _Read:
    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getitem__(self, slices: tuple[slice, ...]) -> Any:
        return self._opened[slices].read().result()


def whole(sample: Sample, size: int, count: int) -> Any:
    """Return a loader of MONAI's crops of a volume in memory."""
    from monai.transforms import RandSpatialCrop  # noqa: PLC0415 - it takes seconds

    volume = torch.from_numpy(sample.voxels(Box.whole((size,) * 3)))
    crop = RandSpatialCrop(SHAPE, random_size=False)

    class Cut(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> torch.Tensor:
            found: torch.Tensor = torch.as_tensor(crop(volume))
            return found

    return DataLoader(Cut(), batch_size=BATCH)


def loaders(sample: Sample, size: int, count: int, stack: ExitStack) -> Iterator[tuple[str, Any]]:
    """Yield each contender's loader by its name."""
    volume = sample.volume
    fields = {"x": volume.dataset}
    data = voxload.VolumeDataset(
        volume.path, fields=fields, axes="DHW", patches=voxload.Patches(SHAPE, per_sample=count)
    )
    yield OWN, stack.enter_context(closing(voxload.DataLoader(data, BATCH, num_workers=2)))
    yield OWN_ROOM, stack.enter_context(closing(voxload.DataLoader(data, BATCH, num_workers=2)))
    # With as much memory as MONAI's volume takes, and what its table needs.
    kept = voxload.Cache(memory=2 * size**3 + 2**25)
    yield (
        "voxload, 2 threads, cache",
        stack.enter_context(closing(voxload.DataLoader(data, BATCH, num_workers=2, cache=kept))),
    )
    workers: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "forkserver"}
    if sample.layout.startswith("zarr"):
        crops = Crops(partial(by_zarr, volume.path, volume.dataset), size, count)
        yield "torch, 2 workers, zarr-python", DataLoader(crops, BATCH, **workers)
        if importlib.util.find_spec("tensorstore"):
            crops = Crops(partial(by_tensorstore, volume.path, volume.dataset), size, count)
            yield "torch, 2 workers, tensorstore", DataLoader(crops, BATCH, **workers)
    if importlib.util.find_spec("monai"):
        yield "MONAI, whole volume in memory", whole(sample, size, count)


def exhaust(loader: Any) -> None:
    """Take all batches."""
    for _ in loader:
        pass


def timed(name: str, loader: Any) -> float:
    """Return the seconds of a run; what the process keeps of decoded chunks is set for it, and filled before."""
    if name != OWN_ROOM:
        return seconds(partial(exhaust, loader))
    set_kept_chunks(ROOM)
    try:
        exhaust(loader)  # to be kept, a chunk has to come again
        return seconds(partial(exhaust, loader))
    finally:
        set_kept_chunks(KEPT_BYTES)


def time_layout(layout: str, place: Path, words: Any) -> list[Row]:
    """Time all contenders on one layout."""
    sample = counts(layout, place, words.size, chunk=CHUNK)
    warm(sample.files())
    with ExitStack() as stack:
        made = dict(loaders(sample, words.size, words.crops, stack))
        for loader in made.values():
            exhaust(loader)  # workers are begun, files are open
        bystanders = Bystanders()
        turns = in_turns(tuple(made), words.rounds, lambda name: timed(name, made[name]))
        others, ours = bystanders.cores(), OWN
        return [
            Row(layout, name, words.crops / turns.median(name), turns.median(ours) / turns.median(name), others)
            for name in made
        ]


def main() -> int:
    """Parse the command line and run."""
    options = parser(__doc__, folder="samples", size=512, rounds=5)
    options.add_argument("--crops", type=int, default=2048, help="crops of an epoch")
    options.add_argument("--wanted", type=float, default=1000.0, help="crops a second that are asked for")
    options.add_argument("--layouts", default=",".join(LAYOUTS), help="some of them, by commas")
    words = options.parse_args()
    with folder(words.folder) as place:
        rows = [row for layout in words.layouts.split(",") for row in time_layout(layout, place, words)]
    return finish(
        words, rows, lambda row: not row.contender.startswith("voxload") or row.crops_per_second >= words.wanted
    )


if __name__ == "__main__":
    sys.exit(main())
