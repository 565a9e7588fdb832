"""Parquet tables: read like pyarrow reads them, by processes that end as they should."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import processes
from voxload.files.parquet import read_table

ENDS = 16
"""Processes that end after reading; where Python opened the file, one in four to eight died of it."""


def test_a_table_is_read_whole(tmp_path: Path) -> None:
    """What pyarrow wrote is what is read."""
    table = pa.table({"a": list(range(1000)), "b": [str(row) for row in range(1000)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100, write_page_checksum=True)
    assert read_table(tmp_path / "t.parquet").equals(table)


@pytest.mark.parametrize(
    ("name", "error"),
    [("none", FileNotFoundError), (".", IsADirectoryError), ("file/t", NotADirectoryError), ("file", pa.ArrowInvalid)],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, error: type[Exception]) -> None:
    """As Python's own open would, or as Arrow does."""
    (tmp_path / "file").write_text("no Parquet")
    with pytest.raises(error):
        read_table(tmp_path / name)


@pytest.mark.long
def test_a_process_ends_well_after_reading(tmp_path: Path) -> None:
    """Arrow's threads hold nothing of Python's when the interpreter shuts down."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({f"c{column}": [1, 2] for column in range(8)}), path)
    script = "import sys; from pathlib import Path; from voxload.files import parquet; "
    script += "parquet.read_table(Path(sys.argv[1]))"
    for _ in range(ENDS):
        processes.run([sys.executable, "-c", script, str(path)], check=True)
