"""standardize_by: normalisation by what a catalogue knows of its voxels."""

from __future__ import annotations

from pathlib import Path

from voxload.catalog.figures import field_figures
from voxload.catalog.rows import Rows
from voxload.errors import DataError, NotFoundError
from voxload.transforms.steps import Standardize


def standardize_by(catalog: str | Path, dataset: str | None = None) -> Standardize:
    """Return the step that brings each channel of a field to mean 0 and deviation 1 over a catalogue's samples.

    The figures are those that ``voxload convert`` took of every voxel; none is read. Name the training part of a split:
    the figures of all samples know of those that are held out.

    Parameters
    ----------
    catalog
        The catalogue, its folder, or the URL of either.
    dataset
        Name of the volume; None where the catalogue has one.

    Raises
    ------
    NotFoundError
        When there is no such catalogue or volume.
    DataError
        When a sample has no statistics, samples have other channels, or a channel is the same everywhere.
    """
    rows = Rows.read(catalog, allow_outside=True)
    figures = field_figures(rows)
    name = next(iter(figures), "") if dataset is None and len(figures) == 1 else dataset
    if name not in figures:
        raise NotFoundError(f"catalogue {rows.name}", found=f"no volume {name!r}", expected=f"one of {sorted(figures)}")
    found = figures[name]
    if found.unknown or not found.channels:
        raise DataError(
            f"catalogue {rows.name}, volume {name!r}",
            found=f"{found.unknown} samples without statistics" if found.unknown else "samples with other channels",
            expected="the statistics of every sample, channel by channel",
            remedy="convert them with voxload convert, or give Standardize the numbers",
        )
    means = [channel.mean for channel in found.channels if channel.mean is not None]
    stds = [channel.std for channel in found.channels if channel.std]
    if len(means) != len(found.channels) or len(stds) != len(found.channels):
        raise DataError(
            f"catalogue {rows.name}, volume {name!r}",
            found="a channel that is the same everywhere, or has no finite voxel",
            expected="channels that vary",
        )
    return Standardize(means, stds)
