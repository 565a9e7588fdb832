"""Parquet tables read without harm to how the process ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_table(path: Path) -> pa.Table:
    """Return the whole table of a Parquet file, whose page checksums are compared where it has them.

    The file is opened by Arrow, never by Python: Arrow's I/O threads outlive the call and let go of the file last.
    If that is a Python object while the interpreter shuts down, they wait for its lock, which ends the process
    with SIGABRT ("terminate called without an active exception"), one exit in eight on a small machine.

    Raises FileNotFoundError, IsADirectoryError, NotADirectoryError and other OSErrors of opening,
    pyarrow.ArrowException and OSError for what is no Parquet.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with pa.OSFile(str(path)) as file:
        return pq.read_table(file, page_checksum_verification=True)
