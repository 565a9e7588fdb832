"""Tables of predictions as files, each of which appears whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from voxload.atomic import replacing
from voxload.errors import StorageError


def write_tables(columns: Mapping[str, Sequence[Any]], *paths: Path) -> None:
    """Write one table to each path, as Parquet or as CSV by its suffix; None is a null, in CSV an empty field.

    Raises StorageError when the storage refuses.
    """
    table = pa.table(dict(columns))
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                if path.suffix == ".parquet":
                    pq.write_table(table, temporary, write_page_checksum=True)
                else:
                    pyarrow.csv.write_csv(table, temporary)
        except OSError as error:
            raise StorageError(
                f"writing {path}", found=str(error).splitlines()[0], remedy="make room, or choose another --output"
            ) from error
