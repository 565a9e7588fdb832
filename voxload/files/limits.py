"""Limits: how much a file may make voxload take, before anything is taken.

A few bytes can claim any number of chunks, rows or values. Each limit is far above what real data need, and a variable
of the environment raises it where they need more. What a file holds is compared with it before memory is allocated or
anything is done once for each of what is claimed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from voxload.errors import DataError, UsageError
from voxload.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit; pure but for the look into the environment at each check."""

    variable: str
    """Variable of the environment that sets it to another number, in bytes also such as ``4GiB``."""
    default: int
    """The limit where it is not set."""
    unit: str
    """What is counted, for messages."""

    @property
    def allowed(self) -> int:
        """The limit now; raises UsageError when the variable holds no number."""
        given = os.environ.get(self.variable)
        if given is None:
            return self.default
        try:
            return parse_bytes(given)
        except ValueError:
            raise UsageError(
                self.variable, found=repr(given), expected="a number, or bytes such as 4GiB", remedy="mend or unset it"
            ) from None

    def check(self, subject: str, found: int, what: str) -> None:
        """Refuse more than the limit.

        Parameters
        ----------
        subject
            What claims it: a file, an array.
        found
            How many units.
        what
            What they are of, for the message, such as ``chunk table``.

        Raises
        ------
        DataError
            When it is more than the limit; the message gives both and the variable.
        """
        allowed = self.allowed
        if found > allowed:
            raise DataError(
                subject,
                found=f"{what} of {found} {self.unit}",
                expected=f"at most {allowed}",
                remedy=f"copy or convert it again if it is damaged; if it is meant, set {self.variable}={found}",
            )


CHUNK_TABLE = Limit("VOXLOAD_MAX_CHUNK_TABLE", 2**30, "bytes")
"""The table of an HDF5 dataset's chunks, or of the chunks in one Zarr shard. 50 million chunks of HDF5 take 1 GiB."""
TABLE = Limit("VOXLOAD_MAX_TABLE", 2**30, "bytes")
"""A catalogue, a table of targets or a file of checksums, decoded. A million samples take a third of it."""
VALUES = Limit("VOXLOAD_MAX_VALUES", 2**24, "values")
"""A vector or table of targets in HDF5 or Zarr."""
DOCUMENT = Limit("VOXLOAD_MAX_DOCUMENT", 2**26, "bytes")
"""JSON, YAML, TOML or another header that is parsed whole: as Python's objects it takes twenty times as much."""
MEMBERS = Limit("VOXLOAD_MAX_MEMBERS", 2**20, "members")
"""Datasets of an HDF5 file, arrays of a Zarr hierarchy, arrays of an archive, records of a file."""
FRAME = Limit("VOXLOAD_MAX_FRAME", 2**30, "bytes")
"""A compressed slice of DICOM, decoded, which is done whole. One of 16,384 x 16,384 pixels of CT takes a half of it."""
OBJECTS = Limit("VOXLOAD_MAX_OBJECTS", 2**20, "objects")
"""Chunks or shards that a storage is asked about one by one, where it cannot list them."""
