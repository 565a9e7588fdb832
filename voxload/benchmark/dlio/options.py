"""Options: what a user says to the plug-in beyond what DLIO's workloads have words for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voxload.errors import UsageError
from voxload.geometry import Boundary, Halo
from voxload.grid import spatial_counts
from voxload.loader.dataloader import DEFAULT_STAGING

PREFIX = "VOXLOAD_DLIO_"
"""Begins the names of all environment variables of the plug-in."""


@dataclass(frozen=True, slots=True)
class Options:
    """How samples are cut and buffered.

    They come from the environment, since DLIO drops words of a workload that it does not know. A command line of DLIO
    can set them as well: ``++hydra.job.env_set.VOXLOAD_DLIO_SPATIAL=1x2x2``.
    """

    spatial: tuple[int, int, int] = (1, 1, 1)
    """Blocks of a sample along (d, h, w), from ``SPATIAL``: as many ranks share each sample."""
    halo: int = 0
    """Voxels around a block, from ``HALO``."""
    boundary: str = "zero"
    """What lies outside a sample, from ``BOUNDARY``: ``zero`` or ``periodic``."""
    staging: str = DEFAULT_STAGING
    """Most bytes of the buffers read ahead into, from ``STAGING``, such as ``4GiB``."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Options:
        """Return the options that an environment has; raises UsageError for names and values that are none."""
        given = {name.removeprefix(PREFIX): text for name, text in environ.items() if name.startswith(PREFIX)}
        known = {"SPATIAL", "HALO", "BOUNDARY", "STAGING"}
        for name in given.keys() - known:
            raise UsageError(
                f"{PREFIX}{name}", found="an option that is not known", expected=f"one of {', '.join(sorted(known))}"
            )
        values = cls(
            spatial=_spatial(given.get("SPATIAL", "1x1x1")),
            halo=_halo(given.get("HALO", "0")),
            boundary=given.get("BOUNDARY", "zero"),
            staging=given.get("STAGING", DEFAULT_STAGING),
        )
        Boundary.parse(values.boundary)
        return values


def _spatial(text: str) -> tuple[int, int, int]:
    parts = text.split("x")
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{PREFIX}SPATIAL", found=repr(text), expected="three counts, such as 1x2x2")
    return spatial_counts([int(part) for part in parts])


def _halo(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{PREFIX}HALO", found=repr(text), expected="a number of voxels")
    Halo.parse(int(text))
    return int(text)
