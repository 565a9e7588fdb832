"""Samples: a field of counts in one of the layouts of bench/reading, and where readers find it."""

from __future__ import annotations

from pathlib import Path

from bench.reading.fields import load_field
from bench.reading.samples import DATASET, LAYOUTS, Sample, store
from voxload.readers import Location


def counts(layout: str, folder: Path, size: int, *, chunk: int) -> Sample:
    """Return int16 counts, `size` along each axis; they are written into `folder` where they are not there yet."""
    return store(LAYOUTS[layout], load_field(folder, "int16", size), chunk=chunk)


def location(sample: Sample) -> Location:
    """Return where a sample is."""
    return Location(str(sample.path), DATASET if sample.path.is_file() else "")
