"""Hosts: facts of the node that a rank runs on, which figures mean nothing without."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from voxload.benchmark.cold.node_memory import memory_limit
from voxload.readers.storage.locality import mount_of

PACKAGES = ("voxload", "torch", "numpy", "h5py", "zarr", "numcodecs", "imagecodecs", "pyarrow", "mpi4py")
"""Whose versions are told, besides the loader's own."""
_SECONDS = 10
"""Most that the tool of a file system may take to answer."""


def describe_host(location: str, packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return facts of this node as plain values, and of the file system that holds `location`.

    Parameters
    ----------
    location
        Where the samples are; a URL has no file system here.
    packages
        Packages of the loader that is measured.
    """
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return {
        "name": socket.gethostname(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_limit(),
        "system": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in dict.fromkeys((*PACKAGES, *packages))},
        "gpus": [torch.cuda.get_device_name(index) for index in gpus],
        "file_system": _file_system(location),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _file_system(location: str) -> dict[str, str]:
    """Return kind, source and stripes of the file system of a path; ``remote`` for a URL."""
    if "://" in location:
        return {"type": "remote", "source": location.split("://", 1)[0]}
    path = _existing(Path(location))
    mount = mount_of(path)
    found = {"type": mount.kind or "unknown", "source": mount.source, "mount": mount.point}
    return found | (_stripes(path) if mount.kind == "lustre" else {})


def _existing(path: Path) -> Path:
    """Return the nearest folder that is there: a pattern names none."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path.resolve()


def _stripes(path: Path) -> dict[str, str]:
    """Return over how many servers Lustre spreads a file, and in pieces of what size."""
    tool = shutil.which("lfs")
    if tool is None:
        return {"stripes": "unknown: lfs is not installed"}
    found = {}
    for name, option in (("stripe_count", "--stripe-count"), ("stripe_size", "--stripe-size")):
        asked = subprocess.run(
            [tool, "getstripe", option, "--directory", os.fspath(path)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        found[name] = asked.stdout.strip() or f"unknown: {asked.stderr.strip()}"
    return found
