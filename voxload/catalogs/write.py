"""write: catalogues that appear whole, several of them together, and never in place of another unasked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from voxload.atomic import replacing
from voxload.catalogs.relocate import relocated
from voxload.catalogs.rows import Rows
from voxload.errors import NotFoundError, StorageError, UsageError


def write_rows(outputs: Mapping[Path, Rows], *, overwrite: bool = False) -> None:
    """Write catalogues under their paths, with the paths in them rewritten for where they are then.

    All are complete before the first gets its name.

    Raises
    ------
    UsageError
        When a name does not end in ``.parquet``, by which catalogues are known, or is taken and not to be overwritten.
    NotFoundError
        When there is no such folder.
    StorageError
        When a folder takes no file.
    """
    for path in outputs:
        check_output(path, overwrite=overwrite)
    at = Path()
    try:
        with ExitStack() as finishing:
            for at, rows in outputs.items():
                temporary = finishing.enter_context(replacing(at))
                pq.write_table(relocated(rows, at.parent).table, temporary, write_page_checksum=True)
    except OSError as error:
        raise StorageError(f"catalogue {at}", found=str(error).splitlines()[0], remedy="nothing was kept") from error


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that no catalogue may be written to, as `write_rows` does."""
    if path.suffix != ".parquet":
        raise UsageError(str(path), found="another ending", expected="a name that ends in .parquet")
    if not path.parent.is_dir():
        raise NotFoundError(f"catalogue {path}", found="no such folder", remedy="make the folder first")
    if path.is_dir():
        raise UsageError(f"catalogue {path}", found="a folder", expected="a name for a file")
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise UsageError(
            f"catalogue {path}",
            found="a file of that name",
            expected="none",
            remedy="choose another name, or replace it with --overwrite",
        )
