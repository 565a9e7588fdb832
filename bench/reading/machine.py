"""Machine: where and with which versions a run took place."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "voxload",
    "h5py",
    "hdf5plugin",
    "numpy",
    "zarr",
    "zarrs",
    "tensorstore",
    "numcodecs",
    "imagecodecs",
    "numba",
    "torch",
    "monai",
    "nvidia-dali-cuda120",
)


def describe() -> dict[str, str]:
    """Return facts about the machine and the versions of what was compared."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    facts = {"processor": model, "cores": str(len(os.sched_getaffinity(0))), "system": platform.release()}
    facts["python"] = platform.python_version()
    return facts | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
