"""Two users of one machine: nobody reads the other one's chunk tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.cache.two_users import A, B, done
from tests.support.settled import settle

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users"),
]

TABLES = """
import h5py
from voxload.readers.hdf5 import tablecache
from voxload.readers.hdf5.chunktable import ChunkTable
from voxload.readers.hdf5.tablecache import Sidecar
from voxload.readers.storage.stamp import Stamp
tablecache.MIN_CHUNKS = 1
os.environ["VOXLOAD_CACHE_DIR"] = str(shared / "cache")
stamp = Stamp.of(str(shared / "x.h5"))
with h5py.File(shared / "x.h5") as file:
    whole = ChunkTable.read(file["x"])
    mine = Sidecar(file["x"], stamp, shared / "cache" / "chunk-tables")
"""
FORGE_TABLE = """
    forged = ChunkTable(whole.offsets[::-1].copy(), whole.sizes, whole.masks, chunk=(1, 4, 4), itemsize=2)
    mine.save(forged)
    assert mine.load() is not None
for path in (shared / "cache").rglob("*"):
    path.chmod(0o777)
"""
READ_TABLE = """
    for _ in range(2):
        found = tablecache.Tables(10**6).load(file["x"], stamp)
        say(np.array_equal(found.offsets, whole.offsets), mine.path.exists(), mine.load() is not None)
"""


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_chunk_table_of_another_user_is_not_read(user: Callable[..., Any], shared: Path, *, is_moved: bool) -> None:
    """Forged offsets under a valid sum, in a folder of another user's or in one's own: the file's index is read."""
    with h5py.File(shared / "x.h5", "w") as file:
        file.create_dataset("x", data=np.arange(64, dtype="<i2").reshape(4, 4, 4), chunks=(1, 4, 4))
    (shared / "x.h5").chmod(0o644)
    os.utime(shared / "x.h5", ns=(10**18, 10**18))
    settle(shared / "x.h5")
    (shared / "cache").mkdir()
    (shared / "cache").chmod(0o777)
    done(user(B, TABLES + FORGE_TABLE))
    folder = shared / "cache" / "chunk-tables"
    if is_moved:
        os.chown(folder, A, A)
        folder.chmod(0o700)
    expected = "True True True" if is_moved else "True True False"
    # In the own folder the forged one, which is not read, makes way for the true one.
    assert done(user(A, TABLES + READ_TABLE)) == [expected, expected]
