"""Claim: pictures in tar shards come at least as fast as from the webdataset package, on as many cores.

Shards of JPEGs as large as ImageNet's are read for some epochs by either, shuffled, in batches, by two threads or two
worker processes that stay. Each runs in a process of its own, in turns; the first epoch, in which workers start, does
not count. webdataset decodes as its documentation has it for pixels of 8 bits, into tensors; ours reads by a catalogue.
The exit status is 1 when the median is below theirs.

    python bench/shards.py [--folder DATA] [--pictures 3000] [--size 256] [--rounds 3] [--workers 2] [--json]
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import voxload
from bench.harness.script import ROOT, finish, folder, number, parser
from voxload.catalog.shards import list_shards

_BATCH = 32
_OF_A_SHARD = 500
_EPOCHS = 3
"""Of a turn, besides the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way to read them."""

    loader: str
    samples_per_second: float
    """The median of all epochs that count."""
    least: float
    """The slowest of them."""
    to_webdataset: float
    """Ratio of the medians."""

    @property
    def is_good(self) -> bool:
        """Whether it keeps the claim, which is about ours."""
        return self.loader != "voxload" or self.to_webdataset >= 1


def write(place: Path, pictures: int, size: int) -> None:
    """Write shards of smooth, noisy pictures, which compress as photographs do, and their catalogue."""
    from PIL import Image  # noqa: PLC0415 - the tests' extra

    rng = np.random.default_rng(0)
    shards = []
    for first in range(0, pictures, _OF_A_SHARD):
        shards.append(place / f"shard-{first // _OF_A_SHARD:06}.tar")
        with tarfile.open(shards[-1], "w") as archive:
            for one in range(first, min(first + _OF_A_SHARD, pictures)):
                coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8))
                smooth = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), np.int16)
                noisy = np.clip(smooth + rng.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
                file = io.BytesIO()
                Image.fromarray(noisy).save(file, "JPEG", quality=90)
                for name, data in ((f"{one:08}.jpg", file.getvalue()), (f"{one:08}.cls", str(one % 1000).encode())):
                    header = tarfile.TarInfo(name)
                    header.size = len(data)
                    archive.addfile(header, io.BytesIO(data))
    list_shards(shards, place, members=("jpg",)).write(place / "catalog.parquet")


def _ours(place: Path, workers: int) -> Iterator[Any]:
    data = voxload.VolumeDataset(place, targets="cls")
    with closing(data), closing(voxload.DataLoader(data, _BATCH, shuffle=True, num_workers=workers)) as loader:
        while True:
            yield loader


def _theirs(place: Path, workers: int) -> Iterator[Any]:
    import webdataset  # noqa: PLC0415 - compared with where it is installed

    shards = sorted(map(os.fspath, place.glob("*.tar")))
    read = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(_OF_A_SHARD)
    batches = read.decode("rgb8").to_tuple("jpg", "cls").batched(_BATCH)
    loader = webdataset.WebLoader(batches, batch_size=None, num_workers=workers, persistent_workers=True)
    while True:
        yield loader


def job(words: Namespace) -> None:
    """Print the samples a second of each epoch that counts, as JSON; runs in a process of its own."""
    warnings.simplefilter("ignore", ResourceWarning)  # webdataset leaves its files to the collector
    torch.set_num_threads(1)
    loaders = (_ours if words.job == "voxload" else _theirs)(words.folder, words.workers)
    rates = []
    for _, loader in zip(range(_EPOCHS + 1), loaders, strict=False):
        begin, seen = perf_counter(), 0
        for pictures, _ in loader:
            seen += len(pictures)
        if seen != words.pictures:
            raise AssertionError(f"{seen} of {words.pictures} pictures")
        rates.append(seen / (perf_counter() - begin))
    print(json.dumps(rates[1:]), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Print the rows."""
    words = parser(__doc__, folder="shards", size=256, rounds=3)
    words.add_argument("--pictures", type=number, default=3000, help="pictures (default 3000)")
    words.add_argument("--workers", type=number, default=2, help="threads, or worker processes (default 2)")
    words.add_argument("--job", choices=("voxload", "webdataset"), help="read as one of them, and print its rates")
    chosen = words.parse_args(arguments)
    if chosen.job:
        job(chosen)
        return 0
    found: dict[str, list[float]] = {"voxload": [], "webdataset": []}
    with folder(chosen.folder) as place:
        write(place, chosen.pictures, chosen.size)
        for _ in range(chosen.rounds):
            for name, rates in found.items():
                command = [sys.executable, str(Path(__file__)), "--job", name, "--folder", str(place)]
                more = ["--pictures", str(chosen.pictures), "--workers", str(chosen.workers)]
                done = subprocess.run([*command, *more], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
                rates.extend(json.loads(done.stdout.splitlines()[-1]))
    theirs = median(found["webdataset"])
    rows = [Row(name, median(rates), min(rates), median(rates) / theirs) for name, rates in found.items()]
    return finish(chosen, rows, lambda row: row.is_good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
