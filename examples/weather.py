"""Weather: windows of hours and the hours after them, from a Zarr hierarchy behind a URL, each hour fetched once.

python examples/weather.py https://data.example.org/era5.zarr --fields temperature geopotential --memory 16GiB

Fields are (time, level, latitude, longitude), as xarray writes ERA5, packed or not. Windows overlap; the cache keeps
every hour by itself, so that an epoch asks the server for each once, and later epochs for none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch
from torch import nn

import voxload


def network(fields: int, hours: int) -> nn.Module:
    """Return a network that takes some hours as channels, and gives the change to the next one."""
    return nn.Sequential(nn.Conv3d(fields * hours, 16, 3, padding=1), nn.GELU(), nn.Conv3d(16, fields, 3, padding=1))


def train(data: voxload.VolumeDataset, cache: voxload.Cache, epochs: int) -> Iterator[tuple[float, int]]:
    """Train, and yield each epoch's mean loss, and how often the server was asked for an hour so far."""
    torch.manual_seed(0)
    fields, window = len(data.field_names), data.parts.window or voxload.Window(1)
    model = network(fields, window.length)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = voxload.DataLoader(data, batch_size=4, shuffle=True, cache=cache)
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            before, after = (torch.cat(list(part), dim=2) for part in (batch[:fields], batch[fields:]))
            mean, scale = before.mean((0, 1, 3, 4, 5), keepdim=True), before.std((0, 1, 3, 4, 5), keepdim=True)
            before, after = ((part - mean) / scale.clamp_min(1e-6) for part in (before, after))
            forecast = before[:, -1] + model(before.flatten(1, 2))
            loss = nn.functional.mse_loss(forecast, after[:, 0])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call] # torch's
            optimiser.step()
            total += loss.item()
        yield total / len(loader), loader.stats().sources["storage"].fetches
    loader.close()


def open_data(url: str, fields: Sequence[str], hours: int) -> voxload.VolumeDataset:
    """Return the windows of the fields that were named."""
    return voxload.VolumeDataset(
        url, fields={name: name for name in fields}, axes="TDHW", window=voxload.Window(hours, horizon=1)
    )


def main() -> None:
    """Train on windows of the hierarchy that was named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a Zarr hierarchy, or its folder")
    parser.add_argument("--fields", nargs="+", default=["temperature"])
    parser.add_argument("--hours", type=int, default=3, help="that the network sees")
    parser.add_argument("--memory", default="1GiB", help="of this node, for hours")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    data = open_data(arguments.url, arguments.fields, arguments.hours)
    print(f"{len(data)} windows")
    for epoch, (loss, asked) in enumerate(train(data, voxload.Cache(memory=arguments.memory), arguments.epochs)):
        print(f"epoch {epoch}, loss {loss:.4f}; {asked} hours asked of the server so far")


if __name__ == "__main__":
    main()
