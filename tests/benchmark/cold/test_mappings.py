"""Mappings: shared maps of named files let go of their pages, and only these."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from voxload.benchmark.cold.coldness import drop_mapped_pages
from voxload.benchmark.cold.pagecache import evict, file_system, resident_share

pytestmark = pytest.mark.usefixtures("page_cache")

SIZE = 1 << 20


def test_maps_of_named_files_let_go(tmp_path: Path) -> None:
    """By whatever path they are named; the maps stay valid, and other files keep their pages."""
    if file_system(tmp_path) in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder's files live in memory")
    files = [tmp_path / name for name in "ab"]
    content = os.urandom(SIZE)
    for path in files:
        path.write_bytes(content)
    (tmp_path / "link").symlink_to("a")
    with files[0].open("rb") as first, files[1].open("rb") as second:
        maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in (first, second)]
    assert all(view[:] == content for view in maps)
    drop_mapped_pages([tmp_path / "link", tmp_path / "gone"])
    evict(files)
    assert [resident_share([path]) for path in files] == [0.0, 1.0]
    assert all(view[:] == content for view in maps)
    for view in maps:
        view.close()


def test_what_only_memory_has_is_kept(tmp_path: Path) -> None:
    """A private map that was written to is left alone: no file has its bytes."""
    path = tmp_path / "x"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        view[:5] = b"mine!"
        drop_mapped_pages([path])
        assert view[:5] == b"mine!"
    assert path.read_bytes() == bytes(SIZE)
