"""Use an installed voxload without extras as a newcomer would: convert a cube, look at it, load a block of it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np

import voxload
import voxload.cache
import voxload.readers


def main() -> None:
    """Raise unless the installed package works from here, and says what to install for pictures."""
    if find_spec("matplotlib") is not None:
        raise SystemExit("matplotlib is there, which only the extra plots should bring")
    for module in (voxload, voxload.readers, voxload.cache):
        where = str(module.__file__)
        if "site-packages" not in where:
            raise SystemExit(f"{module.__name__} comes from {where}, not from the wheel")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cube = np.random.default_rng(0).integers(0, 99, (32, 32, 32, 4)).astype(np.int16)
        (folder / "raw").mkdir()
        with h5py.File(folder / "raw" / "universe.hdf5", "w") as file:
            file["full"], file["unitPar"] = cube, np.linspace(-1, 1, 4)
        subprocess.run(["voxload", "convert", folder / "raw", folder / "converted"], check=True)
        told = subprocess.run(
            ["voxload", "info", folder / "converted" / "universe.zarr", "--spatial", "2,2,2", "--json"],
            check=True,
            capture_output=True,
        )
        ranks = json.loads(told.stdout)["ranks"]
        if [rank["decode_amplification"] for rank in ranks] != [1.0] * 8:
            raise SystemExit(f"octants are not whole chunks: {ranks}")
        plot = ["voxload", "info", folder / "converted" / "universe.zarr", "--plot", folder / "planes.png"]
        refused = subprocess.run(plot, check=False, capture_output=True, text=True)
        if refused.returncode != 2 or 'pip install "voxload[plots]"' not in refused.stderr:
            raise SystemExit(f"a picture without matplotlib: {refused}")
        grid = voxload.ProcessGrid(spatial=(2, 2, 2), world_size=8, rank=5)
        data = voxload.VolumeDataset(folder / "converted", targets=["sigma_8"], grid=grid)
        x, y = data[0]
        if not np.array_equal(x.numpy(), np.moveaxis(cube, -1, 0)[:, 16:, :16, 16:]) or y.shape != (1,):
            raise SystemExit("a block differs from the cube")
        (whole,) = voxload.VolumeDataset(folder / "converted")[0]
        if voxload.models.CosmoFlow(32)(whole[None].float()).shape != (1, 4):
            raise SystemExit("CosmoFlow does not give one row of targets")
    print(f"wheel in {voxload.__file__}: convert, info, load and models work")


if __name__ == "__main__":
    main()
