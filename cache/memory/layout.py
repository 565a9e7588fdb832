"""Layout: what stands where in the file of a memory tier; for the owner, for its node and for gets from afar.

====================  ============================================================================================
bytes                 what
====================  ============================================================================================
0 to 4095             `HEAD`, then zeros
4096 to ``data_at``   the table: ``rows + WINDOW - 1`` rows of 64 bytes, `ROW`
``data_at`` to end    the blocks as stored, each at a multiple of 64 bytes; ``data_at`` is a multiple of 4096
====================  ============================================================================================

All numbers are little-endian. The row of a block is one of the `WINDOW` rows from number ``digest mod rows`` on, the
digest taken as a little-endian integer: one get of `Layout.window` has it or proves that it is not there.

Rules for whoever writes, of whom there is one: the bytes of a block are complete before its row says that it is there,
and the row says that it is gone before they are used again. The sequence number of a row is odd while the row is being
written, grows with every change, and never falls.

Rules for whoever reads: get the window; `find` the row; get the bytes at its `span`; get the row again at its `place`.
Where it is not the same to the byte, the block was dropped or moved meanwhile: begin anew, or take it for absent. Where
it is, ``row.form.takes`` decides: bytes that do not agree with it are damaged. The processor's or the network's order
of these gets does not matter for that: the checksum is of all that was got.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voxload.cache.codec import Codec
from voxload.cache.form import Form, checksum
from voxload.errors import DataError, UsageError
from voxload.readers.scratch import Bytes

MAGIC = b"voxlmem\x01"
"""Its last byte is the version of the layout."""
WINDOW = 64
"""Rows that one block may have its row in; of a table three quarters full, hardly any window is full."""
BLOCK_BYTES = 2**16
"""A table has a row for each so many bytes of the capacity, unless its maker knows better."""

HEAD = np.dtype([("magic", "S8"), ("rows", "<u8"), ("size", "<u8"), ("crc", "<u4")])
"""The head of the file; its checksum is of what comes before it."""

ROW = np.dtype(
    [
        ("digest", "V16"),
        ("sequence", "<u8"),
        ("offset", "<u8"),  # from the beginning of the file
        ("stored", "<u8"),
        ("raw", "<u8"),
        ("kind", "<u4"),
        ("crc", "<u4"),
        ("codec", "u1"),
        ("state", "u1"),  # 1 where there is a block
        ("rest", "V6"),
    ]
)
"""A row of the table; what its fields mean, `voxload.cache.form.Form` says."""

Rows = npt.NDArray[np.void]
"""Rows of a table."""

_PAGE = 4096
_HELD = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A block, as a table tells of it."""

    place: slice
    """Where the row stands."""
    content: bytes
    """The row itself, to be compared with a later look."""
    span: slice
    """Where the bytes of the block stand; nothing is proved of it."""
    form: Form
    """How they are stored."""


def rows_for(blocks: int, capacity: int) -> int:
    """Return the rows of a table for so many blocks: a quarter stay free, and there is one for each `BLOCK_BYTES`."""
    return max(WINDOW, capacity // BLOCK_BYTES, -(-blocks * 4 // 3))


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a file. All slices count bytes from its beginning."""

    rows: int
    """Of the table, but for those that only windows reach."""
    size: int
    """Of the file."""

    @property
    def table(self) -> slice:
        """The rows."""
        return slice(_PAGE, _PAGE + (self.rows + WINDOW - 1) * ROW.itemsize)

    @property
    def data_at(self) -> int:
        """Where blocks begin."""
        end = int(self.table.stop)
        return -(-end // _PAGE) * _PAGE

    @classmethod
    def within(cls, capacity: int, rows: int | None) -> Layout:
        """Return the parts of a file of `capacity` bytes; raises UsageError where not one block would fit."""
        layout = cls(rows_for(0, capacity) if rows is None else rows, capacity)
        if layout.rows < 1 or layout.data_at >= capacity:
            raise UsageError(
                "memory tier",
                found=f"{capacity} bytes for a table of {layout.rows} rows and blocks",
                expected=f"more than {layout.data_at} bytes, and a row or more",
                remedy="raise the capacity",
            )
        return layout

    def head(self) -> bytes:
        """Return the head of the file."""
        head = np.zeros((), HEAD)
        head["magic"], head["rows"], head["size"] = MAGIC, self.rows, self.size
        head["crc"] = checksum(head.tobytes()[:-4])
        return head.tobytes()

    @classmethod
    def parse(cls, head: bytes, size: int, name: str) -> Layout:
        """Return the parts of a file of `size` bytes that begins with `head`; raises DataError where it is none."""
        found = np.frombuffer(head[: HEAD.itemsize].ljust(HEAD.itemsize, b"\0"), HEAD)[0]
        if found["magic"] != MAGIC or found["crc"] != checksum(head[: HEAD.itemsize - 4]) or found["size"] != size:
            raise DataError(
                name,
                found=f"{size} bytes that begin with {head[:8]!r}",
                expected="a memory tier of this version of voxload",
            )
        return cls(int(found["rows"]), size)

    def home(self, digest: bytes) -> int:
        """Return the number of the first row that a block may have."""
        return int.from_bytes(digest, "little") % self.rows

    def window(self, digest: bytes) -> slice:
        """Return where all rows stand that a block may have."""
        start = self.table.start + self.home(digest) * ROW.itemsize
        return slice(start, start + WINDOW * ROW.itemsize)

    def find(self, digest: bytes, window: Bytes) -> Row | None:
        """Return the row of a block out of a copy of its window; None where it has none, or none that is whole."""
        content = window.tobytes()
        at = content.find(digest)
        while at >= 0 and at % ROW.itemsize:
            at = content.find(digest, at + 1)
        if at < 0:
            return None
        row = np.frombuffer(content, ROW, 1, at)[0]
        codec = Codec.numbered(int(row["codec"]))
        offset, stored = int(row["offset"]), int(row["stored"])
        is_there = row["state"] == _HELD and row["sequence"] % 2 == 0
        if not is_there or codec is None or offset < self.data_at or offset + stored > self.size:
            return None
        place = self.window(digest).start + at
        form = Form(int(row["kind"]), codec, stored, int(row["raw"]), int(row["crc"]))
        length = ROW.itemsize
        return Row(slice(place, place + length), content[at : at + length], slice(offset, offset + stored), form)


class Table:
    """The rows of a file, for the one who writes it."""

    def __init__(self, layout: Layout, memory: Bytes) -> None:
        self._layout = layout
        self._rows: Rows = memory[layout.table].view(ROW)
        self._taken = bytearray(len(self._rows))

    def take(self, digest: bytes) -> int | None:
        """Return the number of a row for a block, reserved and still empty; None where all that it may have are."""
        home = self._layout.home(digest)
        row = self._taken.find(0, home, home + WINDOW)
        if row < 0:
            return None
        self._taken[row] = 1
        return row

    def publish(self, row: int, digest: bytes, offset: int, form: Form) -> None:
        """Say that a block is there."""
        new = np.zeros((), ROW)
        new["digest"], new["offset"], new["state"] = np.void(digest), offset, _HELD
        new["stored"], new["raw"], new["kind"] = form.stored, form.raw, form.kind
        new["crc"], new["codec"] = form.crc, form.codec.number
        self._write(row, new)

    def clear(self, row: int) -> None:
        """Say that no block is there, and let another one have the row."""
        self._write(row, np.zeros((), ROW))
        self._taken[row] = 0

    def _write(self, row: int, new: npt.NDArray[np.void]) -> None:
        sequence = int(self._rows["sequence"][row])
        self._rows["sequence"][row] = sequence + 1
        new["sequence"] = sequence + 1
        self._rows[row] = new
        self._rows["sequence"][row] = sequence + 2
