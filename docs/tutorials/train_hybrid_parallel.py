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
# # Train hybrid-parallel
#
# This notebook trains a network on universes that two processes share.
# Each process loads its half of every universe, and the network runs across both.
# The losses equal those of one process that has whole universes.
# It takes about half a minute on two idle cores.
# It needs `pip install "voxload[demo]"`, for the universes.

# %% [markdown]
# ## Start

# %%
import json
import os
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import voxload
from voxload.convert import convert
from voxload.demo.universes import make_universes

home = Path.cwd()
folder = tempfile.TemporaryDirectory(prefix="voxload-")
os.chdir(folder.name)
programs = str(Path(sys.executable).parent)
os.environ["PATH"] = os.pathsep.join([programs, os.environ["PATH"]])

make_universes(Path("raw"), count=8, size=32, seed=1)
report = convert("raw", "universes")
print(len(report.converted), "universes")

# %% [markdown]
# ## The training script
#
# A notebook is one process, and training on several ranks needs several.
# Do not fork them from the notebook: it has threads, and a fork copies their locks as they are.
# Write a script instead, and let a launcher start it.
# This cell writes it.
#
# - `network` is an ordinary network. Nothing in it knows of ranks.
# - `train` is an ordinary loop. Nothing in it knows of ranks either.
# - `main` is what a rank does. `shard` splits the network over the grid, and stock DDP adds up the gradients.
#
# Numbers are float64 here, so that a comparison with one process shows rounding and nothing else.

# %%
# %%writefile training.py
"""Train on universes that the ranks of a job share."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import voxload

TARGETS = ["Omega_m", "sigma_8"]


def network() -> nn.Module:
    """Return a small network that predicts two parameters of universes of 32^3 x 4."""
    torch.manual_seed(0)
    layers = [
        nn.Conv3d(4, 4, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Conv3d(4, 8, 3, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool3d(4),
        nn.Flatten(),
        nn.Linear(8 * 2**3, 2),
    ]
    return nn.Sequential(*layers).double()


def train(model: nn.Module, data: voxload.VolumeDataset, epochs: int = 6) -> list[float]:
    """Train, and return the mean loss of each epoch."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = voxload.DataLoader(data, batch_size=2)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.double().log1p()), y.double())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.item()
        losses.append(total / len(loader))
    return losses


def main() -> None:
    """Train as one rank of a job, and write what came of it."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env(spatial=(2, 1, 1))
    data = voxload.VolumeDataset("universes/", targets=TARGETS, grid=grid)
    model = voxload.engine.shard(network(), grid, shape=(32, 32, 32))
    losses = train(DistributedDataParallel(model), data)
    x, _ = data[0]
    block = str(grid.block((32, 32, 32)))
    told = {"block": block, "shape": list(x.shape), "losses": losses}
    Path(f"rank-{grid.rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# %% [markdown]
# ## Two processes
#
# `voxload.launch.torchrun` is torchrun for the processes of one machine.
# It takes torchrun's options.
# Its ranks meet at the loopback address, so nobody else can reach them.
# `GLOO_SOCKET_IFNAME=lo` keeps their halos and gradients there, too.
# On several nodes, start the same script with `torchrun` itself.

# %% language="bash"
# export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
# python -m voxload.launch.torchrun --nproc-per-node 2 training.py

# %% [markdown]
# Each rank had its own half of every universe, and both saw the same losses.

# %%
ranks = [json.loads(Path(f"rank-{rank}.json").read_text()) for rank in range(2)]
for rank, told in enumerate(ranks):
    print("rank", rank, "block", told["block"], "shape", told["shape"])
assert ranks[0]["block"] == "[0:16, 0:32, 0:32]"
assert ranks[1]["block"] == "[16:32, 0:32, 0:32]"
assert ranks[0]["losses"] == ranks[1]["losses"]

# %% [markdown]
# ## One process
#
# Now the notebook trains the same network itself.
# It has whole universes, an ordinary network, and neither `shard` nor DDP.

# %%
import training

whole = voxload.VolumeDataset("universes/", targets=training.TARGETS)
alone = training.train(training.network(), whole)

# %% [markdown]
# ## The same losses
#
# The losses agree to rounding: sums over voxels are added up in another order.

# %%
shared = ranks[0]["losses"]
apart = [abs(mine - theirs) / theirs for mine, theirs in zip(shared, alone, strict=True)]
worst = max(apart)
print(f"largest relative difference: {worst:.1e}")
assert worst < 1e-10
assert alone[-1] < alone[0]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
epochs = np.arange(1, len(alone) + 1)
left.plot(epochs, alone, "o", fillstyle="none", markersize=11, label="one process")
left.plot(epochs, shared, "x", markersize=7, label="two processes")
left.set(xlabel="epoch", ylabel="mean squared error", xticks=epochs)
left.legend()
right.plot(epochs, apart, "o-")
right.set(xlabel="epoch", ylabel="relative difference", xticks=epochs)
right.set_title("float64 rounds at 1e-16")
right.set_ylim(bottom=0)
plt.show()

# %% [markdown]
# ## More ranks
#
# With `--nproc-per-node 4` the same script has two sample groups of two ranks.
# Each group then takes universes of its own, and a step sees four universes instead of two.
# That is hybrid parallelism: space is split inside a group, samples are dealt to the groups.

# %%
for rank in range(4):
    grid = voxload.ProcessGrid(spatial=(2, 1, 1), world_size=4, rank=rank)
    print("rank", rank, "group", grid.group, "block", grid.block((32, 32, 32)))

# %% [markdown]
# ## End

# %%
os.chdir(home)
folder.cleanup()

# %% [markdown]
# Next: [Train](../guides/training.md) has `voxload train`, which needs no script.
# [The spatially-parallel engine](../explanation/engine.md) says which networks can be split.
