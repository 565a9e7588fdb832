"""ConvertOptions: what a conversion is asked to do, which share of it a task has, and how it reports."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from voxload.convert.gridding import Gridding
from voxload.convert.layout import Extents, Readers
from voxload.convert.sources.hints import Hints
from voxload.convert.storage.compression import Compression
from voxload.errors import UsageError
from voxload.files.names import safe_dataset
from voxload.readers.protocol import Missing

_TASK, _COUNT = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"
_FIRST, _LAST, _STEP = "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP"


@dataclass(frozen=True, slots=True)
class Share:
    """One of several tasks that convert into one folder; task i takes every so many-th volume."""

    task: int
    """Number of this task, from 0."""
    tasks: int
    """How many there are."""

    def __post_init__(self) -> None:
        if self.tasks < 1 or not 0 <= self.task < self.tasks:
            raise UsageError(
                "--task", found=f"{self.task} of {self.tasks}", expected="a number from 0 to one less than --tasks"
            )

    @property
    def name(self) -> str:
        """Name in files, such as ``003-of-032``."""
        width = max(3, len(str(self.tasks)))
        return f"{self.task:0{width}}-of-{self.tasks:0{width}}"

    def takes(self, number: int) -> bool:
        """Tell whether the volume of this number is this task's."""
        return number % self.tasks == self.task

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Share | None:
        """Return the share of a Slurm array task, or None outside of one.

        Raises UsageError when the variables make no sense, or the array's indices do not go up in equal steps: a list
        with gaps, such as ``--array=3,7,8``, does not say which of its tasks this is. An array of one index is the
        whole conversion, so that what a killed task left can be done by ``--array=7`` when the others have ended.
        Source: Slurm's sbatch(1), section output environment variables.
        """
        if _TASK not in environment:
            return None
        try:
            number, count = int(environment[_TASK]), int(environment[_COUNT])
            first, step = int(environment.get(_FIRST, "0")), int(environment.get(_STEP, "1"))
            # A step is said of an array of one index, too, and means nothing there.
            step = 1 if count == 1 else step
            last = int(environment.get(_LAST, str(first + (count - 1) * step)))
            task, rest = divmod(number - first, step)
            if rest or last - first != (count - 1) * step:
                raise ValueError("indices with gaps")  # noqa: TRY301 - as what int raises
            return cls(task, count)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            names = (_TASK, _FIRST, _LAST, _STEP, _COUNT)
            raise UsageError(
                "Slurm's environment",
                found=", ".join(f"{name}={environment.get(name)}" for name in names),
                expected="the numbers of an array task whose indices go up in equal steps",
                remedy="say --task and --tasks",
            ) from error


DEFAULT_MEMORY = 2**30
"""Bytes of memory a conversion may take unless told otherwise."""


class StoredFormat(enum.StrEnum):
    """How samples are stored."""

    ZARR = "zarr"
    """Zarr v3, one group a volume, sharded."""
    HDF5 = "hdf5"
    """HDF5, one file a volume, chunked."""

    @property
    def suffix(self) -> str:
        """Suffix of a volume's file or folder."""
        return ".zarr" if self is StoredFormat.ZARR else ".h5"


class Packing(enum.StrEnum):
    """Whether small samples share a stored volume."""

    AUTO = "auto"
    """Where there are more than a file system should hold as files of their own."""
    ALWAYS = "always"
    """Wherever they would be small files."""
    NEVER = "never"
    """Every sample has a volume of its own."""


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Choices of a conversion; the defaults suit raw universes."""

    format: StoredFormat = StoredFormat.ZARR
    """How samples are stored."""
    hints: Hints = field(default_factory=Hints)
    """What the caller knows of the sources."""
    missing: Missing | str = Missing.ERROR
    """What to do about voxels that were never written: refuse them, or give them the source's fill value."""
    gridding: Gridding | None = None
    """How particles become cubes; None refuses them."""
    stack: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Volumes whose channels are variables of a sample: name to variables, in the order of the channels."""
    targets: Path | Mapping[str, Mapping[str, float]] | None = None
    """Targets that are not in the sources: a table's file, or sample id to target name to value."""
    chunks: Extents | None = None
    """Chunk extents (d, h, w); None to choose them by `readers`."""
    readers: Readers | None = None
    """Who will read; None for a (2, 2, 2) grid without halo."""
    split: Extents | None = None
    """Extents (d, h, w) of the samples that each cube is cut into; None to leave cubes whole."""
    pack: Packing = Packing.AUTO
    """Whether small samples share a stored volume."""
    compression: Compression = Compression.AUTO
    """How chunks are compressed."""
    max_memory: int = DEFAULT_MEMORY
    """Bytes of memory that the whole conversion may take, interpreter and libraries included."""
    workers: int | None = None
    """Threads that encode; None for as many as this process may use cores."""
    share: Share | None = None
    """Which of several tasks this process is; None where it is the only one."""
    scheduler: str | None = None
    """Address of a Dask scheduler, or path of its scheduler file, whose workers convert; None for this process."""
    checksums: bool = False
    """Whether the catalogue gets the checksum of every stored chunk, of samples that were complete before too."""
    verify: bool = False
    """Whether every stored voxel is read again and compared with its source, of samples complete before too."""

    def __post_init__(self) -> None:
        Missing.parse(self.missing)
        _check_stacks(self.stack)
        for option, extents in (("--chunks", self.chunks), ("--split", self.split)):
            if extents is not None and min(extents) < 1:
                raise UsageError(option, found=str(extents), expected="three extents of 1 or more, d,h,w")
        if self.workers is not None and self.workers < 1:
            raise UsageError("--workers", found=str(self.workers), expected="1 or more")
        if self.share is not None and self.scheduler is not None:
            raise UsageError(
                "--scheduler",
                found=f"task {self.share.task} of {self.share.tasks} besides",
                expected="a cluster or array tasks",
                remedy="leave --scheduler out in array tasks; outside of them, --task and --tasks",
            )
        if self.format is StoredFormat.HDF5 and self.compression in (Compression.LZ4, Compression.ZSTD):
            raise UsageError(
                "--compression",
                found=f"{self.compression} with HDF5, which needs a plugin to read it",
                expected="gzip or none",
                remedy="use --format zarr",
            )

    @property
    def source_hints(self) -> Hints:
        """What a source is opened with."""
        return replace(self.hints, missing=Missing.parse(self.missing))


def _check_stacks(stacks: Mapping[str, Sequence[str]]) -> None:
    """Refuse names that no volume can have, stacks of nothing, and variables in more than one place."""
    seen: set[str] = set()
    for name, variables in stacks.items():
        if safe_dataset(name) != name:
            remedy = f"call it {safe_dataset(name)!r}"
            raise UsageError("--stack", found=f"the name {name!r}", expected="a name of a volume", remedy=remedy)
        if isinstance(variables, str) or not variables or not all(variables):
            raise UsageError(
                f"--stack {name}", found=repr(variables), expected="names of variables", remedy="write vx,vy,vz"
            )
        twice = next((one for number, one in enumerate(variables) if one in seen or one in variables[:number]), None)
        if twice is not None:
            raise UsageError(
                f"--stack {name}",
                found=f"variable {twice!r} a second time",
                expected="each in one place",
                remedy="convert into two folders to have it in two volumes",
            )
        seen.update(variables)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a conversion is; counts voxels as bytes, uncompressed."""

    sample: str
    """The volume that is being converted."""
    bytes_done: int
    """Bytes converted so far, over all samples, those of an interrupted run included."""
    bytes_total: int
    """Bytes to convert, over all samples."""


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What a conversion did."""

    converted: tuple[str, ...]
    """Samples that this run completed."""
    skipped: tuple[str, ...]
    """Samples that were complete before."""
    ignored: tuple[str, ...]
    """Files under the source folder that are no raw cubes."""
    bytes_read: int
    """Bytes of voxels read from the sources."""
    bytes_written: int
    """Bytes of the converted volumes as stored."""
    bytes_resumed: int
    """Bytes of voxels that an interrupted run had converted already."""
    chunks: int
    """Chunks that this run encoded."""
    seconds: float
    """Time the run took."""
    catalog: Path
    """The catalogue."""
    is_catalogued: bool = True
    """Whether the catalogue holds all that was planned; False where other tasks are still to come."""
    summed: int = 0
    """Volumes of the catalogue whose chunks have checksums."""
    verified: int = 0
    """Stored voxels that were compared with their source and are equal, those of all channels."""
    generation: int = 0
    """Of the catalogue that the samples were appended to; 0 for one of this conversion alone."""
