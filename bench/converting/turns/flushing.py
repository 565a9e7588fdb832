"""Flushing: results reach the device before the clock stops. Needs the standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def flush(result: Path) -> None:
    """Flush a file, or every file below a folder."""
    for path in [result] if result.is_file() else result.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
