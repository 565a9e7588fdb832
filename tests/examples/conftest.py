"""Universes that the examples train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxload.convert import convert
from voxload.demo.universes import make_universes

UNIVERSES = 9
"""No multiple of two ranks or of two samples a batch."""


@pytest.fixture(scope="session")
def universes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of nine converted universes of 32^3 x 4, as ``voxload demo`` makes them."""
    folder = tmp_path_factory.mktemp("examples")
    make_universes(folder / "raw", count=UNIVERSES, size=32, seed=0, workers=1)
    return convert(folder / "raw", folder / "universes").catalog.parent
