"""Make an analysis of the atmosphere's temperature, as xarray writes it: Zarr with CF times and levels.

python examples/weather/make_data.py analysis.zarr

Every six hours on four levels: winds of a jet carry the anomalies along, travelling waves make new ones where they mix
air across latitudes, all of it fades towards the climate within days, and the sun warms the lowest level by day.
"""

from __future__ import annotations

import argparse

import numpy as np
import xarray

LEVELS = np.array([850.0, 700.0, 500.0, 250.0])
"""Pressure, in hPa."""
LATITUDES, LONGITUDES = np.linspace(80, -80, 32), np.arange(64) * 360 / 64
HOURS = 6
METRES = 111_000.0
"""Of a degree of latitude."""
FADING = 8 * 24.0
"""Hours within which an anomaly falls to 1/e."""
WAVES = np.arange(3, 8)
"""Zonal wave numbers of the eddies."""


def temperatures(steps: int, random: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return temperatures in K, (steps, level, latitude, longitude)."""
    latitude = np.radians(LATITUDES)[:, None]
    climate = 300 - 45 * np.sin(latitude) ** 2 - (850 - LEVELS[:, None, None]) * 0.095
    south_to_north = -90 * np.sin(latitude) * np.cos(latitude) / np.degrees(1) / METRES  # K per metre
    jet = (12 + (850 - LEVELS[:, None, None]) * 0.04) * np.sin(2 * latitude) ** 2  # m/s
    degrees = jet * HOURS * 3600 / METRES / np.cos(latitude)
    numbers = np.fft.rfftfreq(len(LONGITUDES), 1 / len(LONGITUDES))
    carried = np.exp(-1j * np.radians(degrees) * numbers - HOURS / FADING)
    around = np.radians(LONGITUDES)
    amplitudes = random.normal(size=(len(WAVES), 2)) @ [1, 1j]
    anomaly = np.zeros((len(LEVELS), len(LATITUDES), len(LONGITUDES)))
    found = []
    for step in range(-40, steps):  # the first ten days forget how they began
        noise = random.normal(size=(len(WAVES), 2)) @ [1, 1j]
        amplitudes = 0.98 * amplitudes * np.exp(-0.12j) + 0.2 * noise
        meridional = 1.5 * (amplitudes[:, None] * np.exp(1j * WAVES[:, None] * around)).real.sum(0)  # m/s
        made = -meridional * np.cos(latitude) * south_to_north * HOURS * 3600
        anomaly = np.fft.irfft(np.fft.rfft(anomaly + made) * carried, len(LONGITUDES))
        if step >= 0:
            day = np.cos(2 * np.pi * (step * HOURS - 14) / 24 + around) * np.cos(latitude)
            found.append(climate + anomaly + 3 * day * (LEVELS[0] == LEVELS)[:, None, None])
    return np.asarray(found, np.float32)


def main() -> None:
    """Write the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--days", type=int, default=50)
    arguments = parser.parse_args()
    values = temperatures(arguments.days * 24 // HOURS, np.random.default_rng(0))
    dimensions = ("time", "level", "latitude", "longitude")
    coordinates = {
        "time": ("time", np.arange(len(values)) * HOURS, {"units": "hours since 2020-01-01", "calendar": "standard"}),
        "level": ("level", LEVELS, {"units": "hPa", "positive": "down"}),
        "latitude": ("latitude", LATITUDES, {"units": "degrees_north"}),
        "longitude": ("longitude", LONGITUDES, {"units": "degrees_east"}),
    }
    kelvin = {"units": "K", "standard_name": "air_temperature"}
    data = xarray.Dataset({"temperature": (dimensions, values, kelvin)}, coordinates)
    chunks = {"temperature": {"chunks": (1, *values.shape[1:3], 32)}}  # a step, and half of the longitudes
    data.to_zarr(arguments.store, encoding=chunks, zarr_format=2, consolidated=True)
    print(f"{len(values)} steps of {HOURS} hours on {len(LEVELS)} levels are in {arguments.store}")


if __name__ == "__main__":
    main()
