"""Worlds: the small data that pages speak of, under the names that pages use.

A page gets what its blocks name: `raw/` eight raw cubes, `universes/` the same ones converted, and so on; each is made
when a page of this run first needs it. What a page itself makes before it uses it, it is not given.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import icechunk
import nibabel
import numpy as np
import pandas as pd
import xarray
import zarr

from tests.convert.gridding import snapshots
from tests.docs.pages import ROOT, Block
from tests.readers.shards import archives
from voxload.convert import convert
from voxload.demo.universes import make_universes

_SIZE = 32
_CASES = 12
"""So many that each part of a split has some."""


class World:
    """What was made so far, in a folder of this run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fill(self, blocks: Iterable[Block], folder: Path) -> None:
        """Make a folder with a copy of all that blocks of a page name, as far as it is of this world."""
        folder.mkdir()
        text = "\n".join(block.source for block in blocks)
        for name in _MAKERS:
            if _is_needed(name, text):
                _copy(self._made(name), folder / Path(name).name)

    def _made(self, name: str) -> Path:
        path = self._folder / Path(name).name
        if not path.exists():
            _MAKERS[name](path, self)
        return path

    def part(self, name: str) -> Path:
        """Return another thing of this world."""
        return self._made(name)


def _is_needed(name: str, text: str) -> bool:
    """Tell whether a text names something, and does not begin by making it."""
    first = re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", text)
    if first is None:
        return False
    line = text[text.rfind("\n", 0, first.start()) + 1 : first.end()]
    return re.search(r"\bconvert \S+ \S+$|make_universes\(|--(folder|output) \S+$|\bmerge \S+$", line) is None


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _raw(path: Path, _world: World) -> None:
    make_universes(path, count=8, size=_SIZE, seed=0, workers=1)


def _universes(path: Path, world: World) -> None:
    convert(world.part("raw"), path)


def _campaign(path: Path, world: World) -> None:
    """Convert some universes under names of their own."""
    raw = path.with_name(f"{path.name}-raw")
    raw.mkdir()
    for number, cube in enumerate(sorted(world.part("raw").iterdir())[:2]):
        shutil.copy2(cube, raw / f"{path.name}-{number}.hdf5")
    convert(raw, path)


def _universe(path: Path, world: World) -> None:
    shutil.copy2(min(world.part("raw").iterdir()), path)


def _stored(path: Path, world: World) -> None:
    shutil.copytree(world.part("universes") / "universe-00000.zarr", path)


def _theirs(path: Path, world: World) -> None:
    """Convert without checksums."""
    convert(world.part("raw"), path)


def _kits19(path: Path, _world: World) -> None:
    """Write scans and their labels as KiTS19 names them, as many as a held-out part needs."""
    draws = np.random.default_rng(0)
    for number in range(_CASES):
        place = path / "data" / f"case_{number:05d}"
        place.mkdir(parents=True)
        scan = draws.normal(size=(64, 64, 32)).astype(np.float32)
        labels = (scan > 1).astype(np.uint8) + (scan > 2)
        for name, voxels in (("imaging", scan), ("segmentation", labels)):
            _save(place / f"{name}.nii.gz", voxels)


def _save(path: Path, voxels: np.ndarray[Any, Any]) -> None:
    image = nibabel.Nifti1Image(voxels, np.diag([0.7, 0.7, 2.5, 1]))  # type: ignore[no-untyped-call] # nibabel's
    nibabel.save(image, path)


def _scans(path: Path, world: World) -> None:
    convert(world.part("kits19") / "data", path)


def _brats(path: Path, _world: World) -> None:
    draws = np.random.default_rng(0)
    for number in range(2):
        place = path / f"BraTS_{number:03}"
        place.mkdir(parents=True)
        for name in ("t1", "t1ce", "t2", "flair"):
            _save(place / f"BraTS_{number:03}_{name}.nii.gz", draws.normal(size=(24, 24, 16)).astype(np.float32))
        _save(place / f"BraTS_{number:03}_seg.nii.gz", draws.integers(0, 4, (24, 24, 16)).astype(np.uint8))


def _grids(path: Path, _world: World) -> None:
    path.mkdir()
    for number in range(3):
        cube = np.random.default_rng(number).normal(size=(_SIZE,) * 3).astype(np.float32)
        np.save(path / f"box{number}.npy", cube)


def _params(path: Path, _world: World) -> None:
    path.write_text("name,Omega_m,sigma_8\nbox0,0.28,0.81\nbox1,0.31,0.79\nbox2,0.33,0.84\n")


def _density(path: Path, _world: World) -> None:
    np.random.default_rng(0).normal(size=(_SIZE,) * 3).astype("<f4").tofile(path)


def _fields(path: Path, _world: World) -> None:
    np.save(path, np.random.default_rng(0).normal(size=(3, *(_SIZE,) * 3)).astype(np.float32))


def _snapshots(path: Path, _world: World) -> None:
    path.mkdir()
    positions = np.random.default_rng(0).random((500, 3)) * 8
    snapshots.write_hdf5(path / "snapshot_000.hdf5", {1: (positions, 0.25)}, box=8.0)


def _cfd(path: Path, _world: World) -> None:
    path.mkdir()
    for run in range(2):
        for name in ("vx", "vy", "vz", "rho", "T"):
            np.save(path / f"run{run}_{name}.npy", np.random.default_rng(run).normal(size=(16,) * 3).astype("<f4"))


def _birds(path: Path, _world: World) -> None:
    path.mkdir()
    for number in range(2):
        archives.birds(path / f"birds-{number:06}.tar", range(number * 5, (number + 1) * 5))


def _clips(path: Path, _world: World) -> None:
    path.mkdir()
    draws = np.random.default_rng(0)
    for number in range(2):
        clips = {f"{key:04}.mkv": archives.clip(draws.integers(0, 256, (4, 16, 16, 3), np.uint8)) for key in range(6)}
        archives.archive(path / f"clips-{number:06}.tar", clips)


def _era5(path: Path, _world: World) -> None:
    """Write fields on two grids in one file."""
    draws = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["temperature"] = draws.normal(280, 10, (6, 1, 2, 16, 32)).astype("<f4")
        file["land_mask"] = draws.integers(0, 2, (2, 8, 16)).astype("u1")


def _weather(path: Path, _world: World) -> None:
    """Write steps of two years as xarray does, packed into integers as archives do."""
    steps = pd.date_range("2009-12-30", periods=16, freq="6h")
    values = np.random.default_rng(0).normal(280, 10, (16, 2, 16, 32)).astype("<f4")
    data = xarray.DataArray(values, dims=("time", "level", "lat", "lon"), coords={"time": steps}, name="temperature")
    packing = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 250.0, "_FillValue": -32767}
    data.to_zarr(path, zarr_format=2, encoding={"temperature": packing})


def _icechunk(path: Path, _world: World) -> None:
    """Write a repository with one array, (T, D, H, W)."""
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)))
    session = repository.writable_session("main")
    values = np.random.default_rng(0).normal(280, 10, (4, 8, 8, 8)).astype("<f4")
    zarr.create_group(session.store).create_group("air").create_array("temperature", data=values)
    session.commit("four steps")


def _plan(path: Path, _world: World) -> None:
    """Write what `voxload plan` takes many seconds for: two ranks, with a sample's halves or two stages."""
    is_piped = path.stem == "pipeline"
    told = {
        "format": "voxload plan 1",
        "model": "cosmoflow",
        "sample": [4, _SIZE, _SIZE, _SIZE],
        "machine": "h100",
        "spatial": [1, 1, 1] if is_piped else [2, 1, 1],
        "groups": 1,
        "samples": 4,
        "optimizer": "adam",
        "dtype": "float32",
        "layers": {},
        "wrapper": "ddp",
        "stages": 2 if is_piped else 1,
        "microbatches": 4 if is_piped else 1,
        "cuts": ["features_2_0"] if is_piped else [],
        "recompute": [],
        "staging": 6 * 2**20,
        "cache": 0,
        "predicted": {},
    }
    path.write_text(json.dumps(told))


def _link(path: Path, _world: World) -> None:
    """Take a folder of this repository, without what running it has left."""
    shutil.copytree(ROOT / path.name, path, ignore=shutil.ignore_patterns("__pycache__"))


_MAKERS: dict[str, Callable[[Path, World], None]] = {
    "raw": _raw,
    "universes": _universes,
    "campaign1": _campaign,
    "campaign2": _campaign,
    "finished-elsewhere": _campaign,
    "universe.hdf5": _universe,
    "universe-17.hdf5": _universe,
    "theirs": _theirs,
    "kits19": _kits19,
    "scans": _scans,
    "brats": _brats,
    "grids": _grids,
    "params.csv": _params,
    "density.raw": _density,
    "fields.npy": _fields,
    "snapshots": _snapshots,
    "cfd": _cfd,
    "birds": _birds,
    "clips": _clips,
    "era5.h5": _era5,
    "era5.zarr": _weather,
    "weather.icechunk": _icechunk,
    "s3://bucket/universe.zarr": _stored,
    "plan.json": _plan,
    "pipeline.json": _plan,
    "examples": _link,
}
