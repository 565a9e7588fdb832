"""Writer: the contract of a storage format's writer, and how a finished sample gets its final name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from voxload.atomic import TEMPORARY_MARK, remove, sync, sync_folder
from voxload.errors import StorageError, VoxloadError
from voxload.geometry import Box
from voxload.readers.protocol import Volume


class Writer(Protocol):
    """Writes one sample under a temporary name, unit by unit, and gives it its final name when it is complete.

    Rules: one thread at a time; a refusing storage raises StorageError; until ``commit`` returns, nothing of
    the sample is visible under its final name.
    """

    def has(self, unit: Box) -> bool:
        """Tell whether an interrupted run wrote `unit` already."""
        ...

    def write(self, unit: Box, block: Volume) -> None:
        """Write all channels of `unit`, a spatial box; `block` is (C, *unit.shape), any strides."""
        ...

    def commit(self) -> int:
        """Publish the sample and return its stored bytes."""
        ...

    def discard(self) -> None:
        """Remove what was written."""
        ...


def temporary_name(final: Path) -> Path:
    """Return the temporary name of a sample: always the same, so that a later run finds what a killed one left.

    Two processes cannot meet under it: a conversion holds its folder's lock.
    """
    return final.with_name(f".{final.name}{TEMPORARY_MARK}convert")


def ledger_name(final: Path) -> Path:
    """Return the name of the record of an unfinished sample's units."""
    return final.with_name(f"{temporary_name(final).name}.progress")


def remove_leftovers(final: Path) -> None:
    """Remove what a run left that was killed when its sample had just become complete."""
    remove(temporary_name(final))
    remove(ledger_name(final))


def publish(temporary: Path, final: Path) -> None:
    """Flush a complete sample and rename it to its final name, in place of an outdated one."""
    sync(temporary)
    if final.is_dir():
        # Two renames cannot be one: after a crash between them the complete temporary sample is found again.
        remove(final)
    temporary.rename(final)
    sync_folder(final.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system raises while `path` is written into a StorageError of one line."""
    try:
        yield
    except VoxloadError:
        raise
    except OSError as error:
        text = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise StorageError(
            f"writing {path}",
            found=text,
            remedy="make room or mend the storage, then run the same command again: complete samples are kept",
        ) from error
