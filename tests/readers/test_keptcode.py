"""KeptCode: from whom compiled code is taken."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from voxload.files.private import ForeignError
from voxload.readers.compiling import KeptCode

OTHER, THIRD = 61002, 61003
"""Users that need no account."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a source file with two files of compiled code beside it."""
    folder = tmp_path / "package"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__pycache__").chmod(0o755)
    folder.chmod(0o755)
    for name in ("code.f.nbi", "code.f.1.nbc", "code.g.nbi"):
        (folder / "__pycache__" / name).write_bytes(b"")
        (folder / "__pycache__" / name).chmod(0o644)
    (folder / "code.py").write_text("")
    return folder / "code.py"


def beside(source: Path) -> Path:
    """Return the folder beside a source."""
    return source.parent / "__pycache__"


def _writable_folder(source: Path) -> None:
    beside(source).chmod(0o777)


def _writable_file(source: Path) -> None:
    (beside(source) / "code.f.nbi").chmod(0o666)


def _fifo(source: Path) -> None:
    (beside(source) / "code.f.1.nbc").unlink()
    os.mkfifo(beside(source) / "code.f.1.nbc")


def _link(source: Path) -> None:
    (beside(source) / "code.f.1.nbc").unlink()
    (beside(source) / "code.f.1.nbc").symlink_to(source)


def _others_folder(source: Path) -> None:
    os.chown(beside(source), OTHER, -1)


def _others_file(source: Path) -> None:
    os.chown(beside(source) / "code.f.nbi", OTHER, -1)


@pytest.mark.parametrize(
    "lay",
    [
        _writable_folder,
        _writable_file,
        _fifo,
        _link,
        pytest.param(_others_folder, marks=as_root),
        pytest.param(_others_file, marks=as_root),
    ],
)
def test_what_others_may_have_put_there_is_not_taken(source: Path, lay: Callable[[Path], None]) -> None:
    """Folders and files that somebody may write who may not write the source; what is no file."""
    with KeptCode(beside(source), source, "code.f") as code:
        assert sorted(path.name for path in Path(code.path).iterdir()) == ["code.f.1.nbc", "code.f.nbi", "code.g.nbi"]
    lay(source)
    with pytest.raises(ForeignError, match="compiled code in"):
        KeptCode(beside(source), source, "code.f")


@as_root
def test_who_wrote_the_source_is_believed(source: Path) -> None:
    """Their code runs anyway; so does that of a group that may write into the folder of the source."""
    for path in (source, beside(source), beside(source) / "code.f.nbi"):
        os.chown(path, OTHER, -1)
    KeptCode(beside(source), source, "code.f").close()
    os.chown(beside(source), THIRD, -1)
    with pytest.raises(ForeignError, match=f"user {THIRD}"):
        KeptCode(beside(source), source, "code.f")
    os.chown(beside(source), 0, -1)
    beside(source).chmod(0o775)
    source.parent.chmod(0o775)
    KeptCode(beside(source), source, "code.f").close()
    os.chown(beside(source), -1, THIRD)
    with pytest.raises(ForeignError, match="rwxrwxr-x"):
        KeptCode(beside(source), source, "code.f")


def test_what_is_made_elsewhere_is_closed_to_others(source: Path, tmp_path: Path) -> None:
    """A folder outside of the source tree that is still empty; in one that others may not enter, no mode matters."""
    kept = tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    with KeptCode(kept, source, "code.f"):
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    (kept / "code.f.nbi").write_bytes(b"")
    (kept / "code.f.nbi").chmod(0o666)
    KeptCode(kept, source, "code.f").close()
    kept.chmod(0o755)
    with pytest.raises(ForeignError, match="rw-rw-rw-"):
        KeptCode(kept, source, "code.f")
    with KeptCode(kept, source, "code.g") as code:
        (kept / "code.g.nbi").write_bytes(b"")
        (kept / "code.g.nbi").chmod(0o666)
        code.seal()
    assert stat.S_IMODE((kept / "code.g.nbi").stat().st_mode) == 0o644


def test_the_path_leads_to_the_folder_that_was_checked(source: Path) -> None:
    """Whatever is put in its place."""
    with KeptCode(beside(source), source, "code.f") as code:
        beside(source).rename(source.parent / "away")
        beside(source).mkdir()
        assert len(list(Path(code.path).iterdir())) == 3
