"""A video autoencoder of diffusers, split in place: each rank encodes and decodes its part of every frame.

torchrun --nproc-per-node=2 examples/split/video_vae.py

With one process it gives the same video. Weights are random here; ``AutoencoderKLWan.from_pretrained`` loads real ones.
Needs diffusers.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from diffusers import AutoencoderKLWan

import voxload

VIDEO = (9, 32, 48)
"""Frames, height and width."""


def main() -> None:
    """Encode and decode a video."""
    dist.init_process_group("gloo")
    grid = voxload.ProcessGrid.from_env((1, 1, int(os.environ["WORLD_SIZE"])))
    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=4,
        z_dim=2,
        dim_mult=[1, 2],
        num_res_blocks=1,
        temperal_downsample=[True],
        latents_mean=[0.0, 0.0],
        latents_std=[1.0, 1.0],
    )
    voxload.engine.shard_methods(vae, grid, ["encode", "decode"])  # the line that splits it
    with torch.no_grad():
        latents = vae.encode(torch.rand(1, 3, *VIDEO)).latent_dist.mode()
        video = vae.decode(latents).sample
    voxload.engine.unshard(vae)  # and puts it back
    if grid.rank == 0:
        print(f"latents {tuple(latents.shape)}, mean square {latents.square().mean().item()!r}")
        print(f"video {tuple(video.shape)}, mean square {video.square().mean().item()!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
