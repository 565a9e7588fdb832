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
# # Benchmark your disk
#
# This notebook measures how fast a disk feeds training, and what the page cache does to the figure.
# It takes about half a minute on two idle cores.
# The data set is tiny, so the figures here show the method and not the disk.

# %% [markdown]
# ## Start
#
# `DISK` is a folder on the disk to measure, such as `"/scratch/you"`.
# With `None` it is where temporary files go.
# The last cell removes what was written.

# %%
import json
import os
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

DISK = None

home = Path.cwd()
folder = tempfile.TemporaryDirectory(prefix="voxload-", dir=DISK)
os.chdir(folder.name)
programs = str(Path(sys.executable).parent)
os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])

# %% [markdown]
# ## A data set
#
# `voxload bench generate` writes samples whose every voxel can be verified.
# Its note says that these are far less than five times the memory.
# For figures of a disk, leave `--num-samples` out: it then writes five times the memory.

# %% language="bash"
# voxload bench generate data --num-samples 12 --workers 1 \
#     --shape 4,64,64,64 --chunks 32,32,32 --codec blosc-lz4

# %% [markdown]
# ## A run
#
# `voxload bench run` loads batches as training does.
# `--cold run` drops the files from the page cache before the first epoch.
# The next epochs then find in memory what the first one has read.
# `--verify` compares every block with what was written.
# `--compute sleep` is a step's computing in make-believe: 5 ms each.

# %% language="bash"
# voxload bench run data --epochs 3 --order sequential --cold run --verify \
#     --compute sleep --compute-time 5ms --output once.json

# %% [markdown]
# Read the lines with an exclamation mark first: they say what the figures are worth.
# *asked of storage* is what the loader read, *read from devices* is what the disk had to give.
# The rest came from the page cache.
# *AU*, accelerator utilisation, is computing over time.

# %% [markdown]
# ## Each epoch cold
#
# `--cold epoch` empties the page cache before every epoch.
# That is what a data set larger than memory meets.

# %% language="bash"
# voxload bench run data --epochs 3 --order sequential --cold epoch --verify \
#     --compute sleep --compute-time 5ms --output each.json > each.txt && head -n 4 each.txt

# %% [markdown]
# ## What the page cache gives
#
# A result is JSON, with each step of each rank.
# The loader counts what it asked of the storage, and the kernel counts what devices gave.
# Where a file system lives in memory or on a network, the kernel counts no devices, and their bars are zero.

# %%
results = {"--cold run": "once.json", "--cold epoch": "each.json"}
records = {}
for name, path in results.items():
    (run,) = json.loads(Path(path).read_text())["runs"]
    (records[name],) = run["records"]
    print(f"{name:12} {run['cold']['text']}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for place, (name, record) in enumerate(records.items()):
    at = np.arange(1, 4) + 0.35 * (place - 0.5)
    colour = f"C{place}"
    outline = {"fill": False, "edgecolor": colour, "linestyle": ":"}
    asked = [epoch["counts"]["bytes_read"] / 2**20 for epoch in record["epochs"]]
    devices = [epoch["kernel"]["device"] / 2**20 for epoch in record["epochs"]]
    stalls = [1000 * np.mean(epoch["steps"]["stall"]) for epoch in record["epochs"]]
    left.bar(at, asked, 0.3, **outline, label=f"{name}: asked of storage")
    left.bar(at, devices, 0.3, color=colour, label=f"{name}: devices")
    right.bar(at, stalls, 0.3, color=colour, label=name)
left.set(xlabel="epoch", ylabel="MiB", xticks=[1, 2, 3], title="bytes read")
left.set_ylim(top=10)
right.set(xlabel="epoch", ylabel="ms", xticks=[1, 2, 3], title="mean stall of a step")
left.legend(fontsize=8)
right.legend(fontsize=8)
plt.show()

# %% [markdown]
# Whatever the page cache gave, each epoch delivered all voxels, and none of them was wrong.

# %%
data_bytes = 12 * 4 * 64**3 * 2
for record in records.values():
    assert record["wrong"] == []
    for epoch in record["epochs"]:
        assert sum(epoch["steps"]["nbytes"]) == data_bytes

# %% [markdown]
# A run whose cache could not be emptied says *WARM* or *UNVERIFIED* above the picture.
# Do not take its figure for the disk's.

# %% [markdown]
# ## A page of it
#
# `voxload bench report` draws results as one HTML page, and with `--png` as pictures.

# %% language="bash"
# voxload bench report once.json each.json --output report.html --png plots

# %%
Image("plots/epochs-1.png")

# %% [markdown]
# ## End

# %%
os.chdir(home)
folder.cleanup()

# %% [markdown]
# Next: [Benchmark a storage](../guides/benchmarking.md) has clusters, sweeps and other loaders.
# It also says how to read results.
