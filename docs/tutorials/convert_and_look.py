# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Convert and look
#
# This notebook makes two small universes, converts them, and draws what a rank reads of them.
# It takes less than a minute on two cores.
# It needs `pip install "voxload[demo]"`, for the universes.

# %% [markdown]
# ## Start
#
# All files go into a temporary folder, which the last cell removes.
# Commands below are those of this kernel's Python: its folder comes first in `PATH`.

# %%
import os
import sys
import tempfile
from pathlib import Path

import h5py
import matplotlib.pyplot as plt
import numpy as np
import zarr

import voxload
from voxload.convert import convert
from voxload.demo.universes import make_universes

home = Path.cwd()
folder = tempfile.TemporaryDirectory(prefix="voxload-")
os.chdir(folder.name)
programs = str(Path(sys.executable).parent)
os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])

# %% [markdown]
# ## Raw universes
#
# A universe is a cube of matter counts at four times.
# Its file has the layout of the cosmoUniverse collection: the axes are D, H, W and then the channel.
# The parameters that it was made with are in the same file.

# %%
paths = make_universes(Path("raw"), count=2, size=64, seed=1)
with h5py.File(paths[0]) as file:
    raw = file["full"][:]
    print("shape", raw.shape, "dtype", raw.dtype, "chunks", file["full"].chunks)
    for name, value in zip(file["namePar"].asstr()[:], file["physPar"][:], strict=True):
        print(f"{name:8} {value:.3f}")

# %% [markdown]
# ## Convert
#
# `convert` writes each cube as chunks in the order C, D, H, W, and a catalogue of all samples.
# A rank can then read its own block and little else.
# `voxload convert raw/ universes/` does the same on the command line.

# %%
report = convert("raw", "universes")
print(f"{len(report.converted)} samples, {report.chunks} chunks")
print(f"{report.bytes_read:,} bytes read, {report.bytes_written:,} bytes written")

# %% [markdown]
# The voxels are the same, bit for bit.
# Only the order of the axes is another one.

# %%
stored = zarr.open_array("universes/universe-00000.zarr/full", mode="r")
assert stored.dtype == raw.dtype
assert np.array_equal(stored[:], raw.transpose(3, 0, 1, 2))

# %% [markdown]
# ## What is stored
#
# `voxload info` says how a sample is stored.
# With `--spatial` it also says what each rank of a grid reads.
# *read/needed* is the read amplification: bytes read over bytes of the block and its halo.
# A halo of one voxel reaches into the neighbours' chunks, so each rank decodes those chunks too.

# %% language="bash"
# voxload info universes/universe-00000.zarr --spatial 2,2,1 --halo 1

# %% [markdown]
# ## The catalogue
#
# The catalogue has a row for each sample: where it is, how it is stored, and its targets.
# It is a Parquet file, which pandas and duckdb read too.

# %%
voxload.Catalog.read("universes")

# %% [markdown]
# ## Slices, blocks and halos
#
# `voxload.show` draws the three middle planes of the first channel, and reads no more than these.
# Colours go by log(1 + count).
# Lines are the bounds of the blocks of four ranks.
# The bands around them are the halos.

# %%
grid = voxload.ProcessGrid(spatial=(2, 2, 1), world_size=4)
voxload.show(stored, grid, halo=1)

# %% [markdown]
# ## One universe at four times
#
# The channels are four redshifts of the same universe.
# Matter clusters with time: at redshift 0 the histogram is widest.

# %%
figure, panel = plt.subplots(figsize=(7, 3.5), layout="constrained")
for channel, redshift in enumerate((0.0, 0.5, 1.5, 3.0)):
    panel.hist(
        np.log1p(stored[channel]).ravel(),
        bins=np.linspace(0, 8, 33),
        histtype="step",
        label=f"redshift {redshift}",
    )
panel.set(xlabel="log(1 + count)", ylabel="voxels")
panel.legend()
plt.show()

spread = [float(np.log1p(stored[channel]).std()) for channel in range(4)]
assert spread == sorted(spread, reverse=True)

# %% [markdown]
# ## End

# %%
os.chdir(home)
folder.cleanup()

# %% [markdown]
# Next: [Blocks and halos](blocks_and_halos.py) loads what each rank needs.
# [Converting raw cubes](../guides/converting.md) has all options.
