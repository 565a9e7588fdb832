"""Stored samples that the tests of augmentation share."""

from __future__ import annotations

import pytest

from tests.augment.samples import BRICK, CUBE, Stored, make


@pytest.fixture(scope="session")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Return a sample of equal extents."""
    return make(tmp_path_factory.mktemp("cube") / "cube.h5", CUBE)


@pytest.fixture(scope="session")
def brick(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Return a sample of which two extents are equal."""
    return make(tmp_path_factory.mktemp("brick") / "brick.h5", BRICK)
