"""Libraries that only some formats need."""

from __future__ import annotations

import math

import pytest

from voxload.convert.sources.libraries import library
from voxload.errors import UsageError


def test_a_missing_library_has_a_remedy() -> None:
    """What is not installed is named, with the command that installs it; what is there is imported."""
    assert library("math", "cube") is math
    with pytest.raises(UsageError, match=r'cube: found no package lost_library.*pip install "voxload\[formats\]"'):
        library("lost_library.io", "cube")
