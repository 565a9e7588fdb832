"""Dask distributed, which only clusters need."""

from __future__ import annotations

import importlib
from typing import Any

from voxload.errors import UsageError


def dask_library() -> Any:
    """Return the module ``distributed``; raises UsageError when it is not installed."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError(
            "--scheduler", found="no package distributed", expected="it", remedy='pip install "voxload[cluster]"'
        ) from error
