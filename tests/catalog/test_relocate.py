"""relocate: paths name the same files from wherever the catalogue is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.catalog.tables import rows
from voxload.catalog import relocated
from voxload.catalog.rows import resolved

_FOLDERS = ["", "a", "a/b", "a/b/c", "link", "link/d", "x"]
"""Folders of the tree below; ``link`` leads to ``a/b/deep``, so that ``link/..`` is ``a/b``."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make folders, one of them by a link, with a file ``f`` in each that says where it is."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("a/b/c", "a/b/deep/d", "x"):
        (root / name).mkdir(parents=True)
    (root / "link").symlink_to("a/b/deep")
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]:
        (folder / "f").write_text(str(folder))
    return root


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=st.sampled_from(_FOLDERS),
    new=st.sampled_from(_FOLDERS),
    steps=st.lists(st.sampled_from(["..", ".", "a", "b", "c", "link", "d", "x"]), max_size=4),
)
def test_a_moved_path_names_the_same_file(tree: Path, old: str, new: str, steps: list[str]) -> None:
    """Whatever folders, links and ``..`` are in the way, the file that is opened is the same."""
    before = rows(["s"], tree / old, path=["/".join([*steps, "f"])], checksums=["/".join([*steps, "f"])])
    source = tree / old / before.strings("path")[0]
    after = relocated(before, tree / new)
    assert after.folder == tree / new
    for column in ("path", "checksums"):
        found = tree / new / after.strings(column)[0]
        assert source.exists() == found.exists()
        if source.exists():
            assert found.read_text() == source.read_text()
            assert resolved(after, column) == resolved(before, column) == [str(source.resolve())]


def test_what_is_absolute_stays(tmp_path: Path) -> None:
    """Absolute paths, URLs and empty names are as they were; a relative path goes up to its folder."""
    before = rows(
        ["a", "b", "c"],
        tmp_path / "in",
        path=["/data/a.zarr", "s3://bucket/b.zarr", "c.zarr"],
        checksums=["/data/sums.parquet", None, "sums.parquet"],
    )
    after = relocated(before, tmp_path / "out" / "deep")
    assert after.strings("path") == ["/data/a.zarr", "s3://bucket/b.zarr", "../../in/c.zarr"]
    assert after.strings("checksums") == ["/data/sums.parquet", "", "../../in/sums.parquet"]


def test_one_folder_changes_nothing(tmp_path: Path) -> None:
    """In the same folder, by whatever name, rows stay as they are written."""
    (tmp_path / "in").mkdir()
    (tmp_path / "other").symlink_to("in")
    before = rows(["a"], tmp_path / "in", path=["./x/../a.zarr"])
    assert relocated(before, tmp_path / "other").table.equals(before.table)


def test_a_link_is_kept(tmp_path: Path) -> None:
    """A link on the way down stays in the path: who lets it lead elsewhere means that."""
    (tmp_path / "store").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "data").symlink_to(tmp_path / "store")
    before = rows(["a"], tmp_path / "in", path=["data/a.zarr"])
    assert relocated(before, tmp_path).strings("path") == ["in/data/a.zarr"]
