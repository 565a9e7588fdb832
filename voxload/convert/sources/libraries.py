"""Import of a library that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any

from voxload.errors import UsageError


def library(name: str, subject: str) -> Any:
    """Return the module `name`; raises UsageError on behalf of `subject` when it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            subject, found=f"no package {package}", expected="it", remedy='pip install "voxload[formats]"'
        ) from error
