"""What lies in the folder of a disk tier, and what its ledger says of it."""

from __future__ import annotations

from pathlib import Path

from voxload.cache.disk.ledger import Ledger
from voxload.files.private import PrivateFolder

CAPACITY = 2**18


def files_of(folder: Path) -> dict[str, int]:
    """Return names and sizes of all files in a folder."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def ledger_of(folder: Path) -> Ledger:
    """Return another look at a folder's ledger."""
    with PrivateFolder.open(folder) as opened:
        return Ledger(opened)


def check_account(folder: Path) -> None:
    """Check that the ledger of a folder that nobody uses tells its bytes."""
    ledger = ledger_of(folder)
    found = ledger.used
    ledger.close()
    assert found == sum(files_of(folder).values())
