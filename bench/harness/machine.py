"""Machine: where and with which versions a run took place."""

from __future__ import annotations

from voxload.benchmark.run.hosts import describe_host

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
    "torch",
    "monai",
    "nvidia-dali-cuda120",
)


def describe() -> dict[str, str]:
    """Return facts about the machine and the versions of what was compared."""
    host = describe_host(".", PACKAGES)
    facts = {name: str(host[name]) for name in ("processor", "cores", "system", "python")}
    return facts | {name: host["versions"][name] for name in PACKAGES}
