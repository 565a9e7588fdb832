"""Two users of one machine: nobody reads the other one's chunk tables or runs the other one's compiled code."""

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


KERNEL = """
import numba
from numba import int64
from voxload.readers.compiling import compiled
numba.config.CACHE_DIR = str(shared / "kept")
sys.path.insert(0, str(shared / "code"))
from kernels import add
say(compiled(int64, returns=int64)(add)(41), *warned)
"""
FORGE_CODE = """
import pickle
class Bomb:
    def __reduce__(self):
        return Path.touch, (shared / "executed",)
for path in (shared / "kept").rglob("*"):
    if path.suffix in (".nbi", ".nbc"):
        path.write_bytes(pickle.dumps(Bomb()))
    path.chmod(0o777)
"""


def test_compiled_code_of_another_user_is_not_run(user: Callable[..., Any], shared: Path) -> None:
    """A folder that another user made first: every kernel is compiled, with a warning; nothing is unpickled."""
    (shared / "code").mkdir()
    (shared / "code").chmod(0o755)
    (shared / "code" / "kernels.py").write_text("def add(value):\n    return value + 1\n")
    (shared / "kept").mkdir()
    (shared / "kept").chmod(0o1777)
    assert done(user(B, KERNEL)) == ["42"]
    (leaf,) = (shared / "kept").iterdir()
    assert leaf.stat().st_mode & 0o7777 == 0o700  # whatever the umask
    assert len(list(leaf.iterdir())) == 2
    done(user(B, FORGE_CODE))
    (said,) = done(user(A, KERNEL))
    assert said.startswith("42 ")
    assert f"user {B}" in said
    assert not (shared / "executed").exists()
