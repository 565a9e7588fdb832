"""Settings: what DLIO and its user were told, as plain values; what the plug-in cannot do is refused here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


FORMATS = ("hdf5", "npy")
"""Formats of DLIO that voxload reads."""
STORAGES = ("local_fs", "parallel_fs")
"""Storages of DLIO that voxload reads."""
_DEFAULT_PREFETCH = 2
"""Batches ahead of each thread where a workload says 0, as DLIO's loader has it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A workload of DLIO as far as loading is concerned."""

    stored_format: str
    """One of `FORMATS`."""
    dims: tuple[int, ...]
    """Extents of a record where the workload says them (``record_dims``); none for the square that DLIO writes else."""
    parts: int
    """Datasets that make up a record, which is cut along its first axis (``num_dset_per_record``)."""
    per_file: int
    """Samples of a file."""
    batch_size: int
    """Samples of a rank's step."""
    threads: int
    """Reader threads; 0 for voxload's own choice."""
    prefetch: int
    """Batches ahead for each thread."""
    is_pinned: bool
    """Whether batches are copied to pinned memory, where there is an accelerator."""
    rank: int
    ranks: int

    @classmethod
    def of(cls, args: Any, *, is_training: bool) -> Settings:
        """Return the settings in DLIO's ``ConfigArguments``, of the training's or the evaluation's batches.

        Raises UsageError for what voxload would have to leave undone without a word.
        """
        _check(args)
        threads = int(args.read_threads)
        return cls(
            stored_format=_word(args.format),
            dims=tuple(int(extent) for extent in getattr(args, "record_dims", ())),
            parts=int(getattr(args, "num_dset_per_record", 1)),
            per_file=int(args.num_samples_per_file),
            batch_size=int(args.batch_size if is_training else args.batch_size_eval),
            threads=threads,
            prefetch=math.ceil(args.prefetch_size / max(threads, 1)) or _DEFAULT_PREFETCH,
            is_pinned=bool(getattr(args, "pin_memory", True)),
            rank=int(args.my_rank),
            ranks=int(args.comm_size),
        )


def _check(args: Any) -> None:
    """Refuse formats, storages and ways of reading that are not voxload's."""
    if _word(args.format) not in FORMATS:
        raise UsageError(
            "workload.dataset.format",
            found=_word(args.format),
            expected=f"{' or '.join(FORMATS)}: voxload reads no other format that DLIO writes",
            remedy="generate the data with ++workload.dataset.format=hdf5, or use DLIO's own loader",
        )
    if _word(args.storage_type) not in STORAGES:
        raise UsageError(
            "workload.storage.storage_type",
            found=_word(args.storage_type),
            expected=" or ".join(STORAGES),
            remedy="use DLIO's own loader for object stores",
        )
    if getattr(args, "odirect", False):
        raise UsageError("workload.reader.odirect", found="true", expected="false", remedy="use DLIO's own loader")


def refuse_preprocessing(args: Any) -> None:
    """Raise UsageError where DLIO's loader would emulate preprocessing in its workers: voxload's threads only read."""
    if _has_any(args.preprocess_time):
        raise UsageError(
            "workload.reader.preprocess_time",
            found=str(args.preprocess_time),
            expected="0: voxload's threads read, and emulate no preprocessing",
            remedy="leave it out, or use reader.reader_classname with DLIO's own loader",
        )


def _word(value: Any) -> str:
    """Return the word of an enumeration's member, which some releases of DLIO leave as plain text."""
    return str(getattr(value, "value", value))


def _has_any(time: Any) -> bool:
    """Tell whether a time of DLIO's, a number or the numbers of a distribution, is more than 0."""
    if isinstance(time, dict):
        return any(_has_any(value) for value in time.values() if not isinstance(value, str))
    return bool(time)
