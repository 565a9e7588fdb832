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
# # Blocks and halos
#
# This notebook loads the blocks of all eight ranks of a grid in one process.
# It compares each of them with a slice of the whole volume, bit for bit.
# It takes a few seconds and needs nothing but voxload.

# %% [markdown]
# ## A volume
#
# The extents are no multiples of two, so that the blocks are not all alike.
# The volume is a `.npy` file: voxload reads it as it is.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import voxload

folder = tempfile.TemporaryDirectory(prefix="voxload-")
path = Path(folder.name) / "volume.npy"

angles = [np.linspace(0, 2 * np.pi, extent, endpoint=False) for extent in (25, 30, 41)]
d, h, w = np.meshgrid(*angles, indexing="ij")
waves = np.sin(2 * d) * np.cos(h) + np.sin(h + 3 * w) + 0.3 * np.cos(5 * w)
volume = np.stack([waves, waves**2]).astype(np.float32)
np.save(path, volume)
print("(C, D, H, W) =", volume.shape, volume.dtype)

# %% [markdown]
# ## The grid
#
# Eight ranks share each sample: two along D, two along H and two along W.
# A `ProcessGrid` only computes, it never communicates.
# So one process can ask for any rank's block.

# %%
grid = voxload.ProcessGrid(spatial=(2, 2, 2), world_size=8, rank=0)
print("bounds along D, H and W:", grid.bounds(volume.shape[1:]))
for rank in range(grid.world_size):
    seen = grid.at(rank)
    print("rank", rank, "at", seen.coords, "has", seen.block(volume.shape[1:]))

# %% [markdown]
# As the last value of a cell, a grid shows its ranks.

# %%
grid

# %% [markdown]
# `voxload.show` draws where the blocks and their halos lie in the volume.

# %%
voxload.show(volume, grid, halo=2, boundary="periodic")

# %% [markdown]
# ## The blocks
#
# A `VolumeDataset` with a rank's grid gives that rank's block.
# The four axes of a `.npy` file have no names, so `axes` says them.

# %%
blocks = []
for rank in range(grid.world_size):
    data = voxload.VolumeDataset(path, axes="CDHW", grid=grid.at(rank))
    (block,) = data[0]
    blocks.append(block.numpy())
    box = grid.at(rank).block(volume.shape[1:])
    assert np.array_equal(blocks[rank], volume[(slice(None), *box.slices)])
    print("rank", rank, "shape", blocks[rank].shape)

# %% [markdown]
# Together the blocks are the volume: each voxel belongs to exactly one of them.

# %%
together = np.full_like(volume, np.nan)
times = np.zeros(volume.shape[1:], int)
for rank, block in enumerate(blocks):
    box = grid.at(rank).block(volume.shape[1:])
    together[(slice(None), *box.slices)] = block
    times[box.slices] += 1
assert np.array_equal(together, volume)
assert (times == 1).all()

# %% [markdown]
# ## The halo
#
# A convolution of 5 x 5 x 5 voxels needs two voxels of the neighbours on each side.
# `halo=2` loads them with the block.
# At the ends of the volume `boundary` decides: `"periodic"` takes voxels from the opposite end, `"zero"` takes zeros.
# numpy's `pad` does the same to the whole volume.

# %%
halo = 2
padded = {
    "periodic": np.pad(volume, [(0, 0)] + [(halo, halo)] * 3, mode="wrap"),
    "zero": np.pad(volume, [(0, 0)] + [(halo, halo)] * 3),
}
with_halo = {}
for boundary, whole in padded.items():
    for rank in range(grid.world_size):
        data = voxload.VolumeDataset(path, axes="CDHW", grid=grid.at(rank), halo=halo, boundary=boundary)
        (block,) = data[0]
        with_halo[boundary, rank] = block.numpy()
        box = grid.at(rank).block(volume.shape[1:])
        # The padded volume begins `halo` voxels before the volume.
        ends = zip(box.start, box.stop, strict=True)
        around = [slice(start, stop + 2 * halo) for start, stop in ends]
        assert np.array_equal(block.numpy(), whole[(slice(None), *around)])
print("16 blocks with halos are equal to numpy's, bit for bit")

# %% [markdown]
# ## What a rank holds
#
# The picture shows a plane through the blocks of ranks 0 to 3, which are the first along D.
# The rectangle is the block, and what is outside of it is the halo.

# %%
row = 6


def draw(boundary: str) -> None:
    """Draw the planes of four ranks, each at its coordinates."""
    figure, panels = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    for rank, panel in enumerate(panels.flat):
        plane = with_halo[boundary, rank][0, row + halo]
        high, wide = (extent - 2 * halo for extent in plane.shape)
        image = panel.imshow(plane, cmap="viridis", vmin=waves.min(), vmax=waves.max())
        frame = plt.Rectangle((halo - 0.5, halo - 0.5), wide, high, fill=False)
        frame.set(edgecolor="red", linewidth=2)
        panel.add_patch(frame)
        panel.set_title(f"rank {rank}, at {grid.at(rank).coords}")
        panel.set(xlabel="W of the block and halo", ylabel="H")
    figure.colorbar(image, ax=panels, label="value of the voxel")
    figure.suptitle(f"plane D = {row}, boundary {boundary}")
    plt.show()


draw("periodic")

# %% [markdown]
# With zeros outside, the halo is empty at the ends of the volume, and full where a neighbour is.

# %%
draw("zero")

# %% [markdown]
# ## What a halo costs
#
# Thin halos around large blocks cost little.
# Around small blocks they are more than the block itself.

# %%
print("halo  block and halo over block")
for wide in (16, 64, 256):
    for width in (1, 2, 4):
        print(f"{width:4}  {(wide + 2 * width) ** 3 / wide**3:5.2f} of a block of {wide}^3")

# %% [markdown]
# ## End

# %%
folder.cleanup()

# %% [markdown]
# Next: [Train hybrid-parallel](train_hybrid_parallel.py) computes with such blocks.
# [Load blocks](../guides/loading.md) has all options of data sets and loaders.
