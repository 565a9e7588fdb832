"""Forecasting: windows of a simulation's steps, and the steps after them, from files in The Well's layout.

python examples/cfd/rollout.py "the_well/train/*.hdf5" --density t0_fields/density --velocity t1_fields/velocity

Each file holds several trajectories of many steps: ``density`` (N, T, D, H, W), and ``velocity``, components last.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import nn

import voxload

STEPS = 2
"""Steps that the network sees."""


def network(channels: int) -> nn.Module:
    """Return a network that takes some steps as channels, and gives the change to the next one."""
    return nn.Sequential(
        nn.Conv3d(STEPS * channels, 16, 3, padding=1, padding_mode="circular"),
        nn.GELU(),
        nn.Conv3d(16, channels, 3, padding=1, padding_mode="circular"),
    )


def rollout(model: nn.Module, state: torch.Tensor, horizon: int) -> torch.Tensor:
    """Return the steps after ``(B, T, C, d, h, w)``, each from what was forecast before it."""
    found = []
    for _ in range(horizon):
        step = state[:, -1] + model(state.flatten(1, 2))
        found.append(step)
        state = torch.cat([state[:, 1:], step[:, None]], dim=1)
    return torch.stack(found, dim=1)


def train(data: voxload.VolumeDataset, epochs: int) -> Iterator[float]:
    """Train, and yield each epoch's mean loss."""
    torch.manual_seed(0)
    model = network(4)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = voxload.DataLoader(data, batch_size=4, shuffle=True)
    for _ in range(epochs):
        total = 0.0
        for density, velocity, density_after, velocity_after in loader:
            before, after = (torch.cat(pair, 2) for pair in ((density, velocity), (density_after, velocity_after)))
            loss = nn.functional.mse_loss(rollout(model, before, after.shape[1]), after)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            total += loss.item()
        yield total / len(loader)


def main() -> None:
    """Train on windows of the files that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", help="a pattern")
    parser.add_argument("--density", default="t0_fields/density")
    parser.add_argument("--velocity", default="t1_fields/velocity")
    parser.add_argument("--horizon", type=int, default=2, help="steps to forecast")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    data = voxload.VolumeDataset(
        arguments.files,
        fields={"density": arguments.density, "velocity": arguments.velocity},
        axes={"density": "NTDHW", "velocity": "NTDHWC"},
        window=voxload.Window(STEPS, horizon=arguments.horizon),
    )
    print(f"{len(data)} windows")
    for epoch, loss in enumerate(train(data, arguments.epochs)):
        print(f"epoch {epoch}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
