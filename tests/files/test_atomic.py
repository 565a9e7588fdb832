"""atomic: files and folders appear whole or not at all."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from voxload.files.atomic import TEMPORARY_MARK, publish, remove, remove_partials, replacing, sync, temporary_beside


def names(folder: Path) -> list[str]:
    """Return what a folder holds."""
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    """Under its final name there is nothing before the block ends, and all of it afterwards."""
    path = tmp_path / "x.bin"
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert TEMPORARY_MARK in temporary.name
        assert temporary.parent == path.parent
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["x.bin"]


def fill(path: Path, kind: str, text: str) -> None:
    """Make a file, a folder, or a link to a folder with some text."""
    if kind == "file":
        path.write_text(text)
        return
    folder = path if kind == "folder" else path.with_name("elsewhere")
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "x").write_text(text)
    if kind == "link":
        path.symlink_to(folder)


def content(path: Path) -> str:
    """Return the text."""
    return (path / "deep" / "x").read_text() if path.is_dir() else path.read_text()


@pytest.mark.parametrize("old", ["", "file", "folder", "link"])
@pytest.mark.parametrize("new", ["file", "folder"])
def test_anything_replaces_anything(tmp_path: Path, old: str, new: str) -> None:
    """A file or folder takes the place of a file, a folder or a link; what a link led to stays."""
    path = tmp_path / "x"
    if old:
        fill(path, old, "old")
    with replacing(path) as temporary:
        fill(temporary, new, "new")
    assert content(path) == "new"
    assert not path.is_symlink()
    assert names(tmp_path) == (["elsewhere", "x"] if old == "link" else ["x"])
    if old == "link":
        assert content(tmp_path / "elsewhere") == "old"


@pytest.mark.parametrize("old", ["", "file", "folder"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_state(tmp_path: Path, old: str, error: type[BaseException]) -> None:
    """Whatever ends the block, an interrupt too, the old content stays and the temporary one goes."""
    path = tmp_path / "x"
    if old:
        fill(path, old, "old")

    def work() -> None:
        with replacing(path) as temporary:
            fill(temporary, "folder", "half")
            raise error

    with pytest.raises(error):
        work()
    assert names(tmp_path) == (["x"] if old else [])
    assert not old or content(path) == "old"


def test_a_folder_that_cannot_be_put_into_place_leaves_the_old_one(tmp_path: Path) -> None:
    """The rename itself fails, as it does for a folder in its own inside: the old folder has its name again."""
    path = tmp_path / "x"
    fill(path, "folder", "old")
    with pytest.raises(OSError, match="x"):
        publish(tmp_path, path)
    assert content(path) == "old"
    assert names(tmp_path) == ["x"]


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    """A block that wrote nothing does not remove what was there."""
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text() == "old"


def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    """A write that the system refuses half-way leaves the old file and no other. The limit stands in for the disk."""
    path = tmp_path / "x"
    path.write_text("old")
    script = (
        "import resource, sys; from pathlib import Path; from voxload.files.atomic import replacing\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_bytes(bytes(1 << 20))"
    )

    run = processes.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "File too large" in run.stderr
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_a_killed_writer_leaves_the_old_state(tmp_path: Path) -> None:
    """SIGKILL half-way: the old file stays, and what is left carries the temporary mark."""
    path = tmp_path / "x"
    path.write_text("old")
    script = (
        "import sys; from pathlib import Path; from voxload.files.atomic import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half'); print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=processes.LIMIT)
    assert path.read_text() == "old"
    left = [name for name in names(tmp_path) if name != "x"]
    assert left == [f".x{TEMPORARY_MARK}{platform.node()}-{child.pid}"]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    (tmp_path / f".xy{TEMPORARY_MARK}of-another").touch()
    remove_partials(path)
    assert names(tmp_path) == [f".xy{TEMPORARY_MARK}of-another", "x"]


def test_two_processes_do_not_mix(tmp_path: Path) -> None:
    """Writers of one path in several processes: the result is the whole work of one of them."""
    script = (
        "import sys; from pathlib import Path; from voxload.files.atomic import replacing\n"
        "for _ in range(20):\n"
        "    with replacing(Path(sys.argv[1])) as temporary:\n"
        "        temporary.write_text(sys.argv[2] * 100_000)"
    )
    commands = [[sys.executable, "-c", script, str(tmp_path / "x"), letter] for letter in "abc"]
    children = [subprocess.Popen(command) for command in commands]
    assert [child.wait(timeout=processes.LIMIT) for child in children] == [0, 0, 0]
    assert (tmp_path / "x").read_text() in {letter * 100_000 for letter in "abc"}
    assert names(tmp_path) == ["x"]


def test_remove_takes_all_and_follows_no_link(tmp_path: Path) -> None:
    """Files, folders, links and nothing at all can be removed; the target of a link stays."""
    for kind in ("file", "folder", "link"):
        fill(tmp_path / "x", kind, "old")
        remove(tmp_path / "x")
        assert not (tmp_path / "x").exists()
    remove(tmp_path / "x")
    assert names(tmp_path) == ["elsewhere"]


def test_sync_takes_files_and_folders(tmp_path: Path) -> None:
    """Flushing leaves the content and no descriptor."""
    fill(tmp_path / "x", "folder", "text")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a listing without an open iterator
    sync(tmp_path / "x")
    sync(tmp_path / "x" / "deep" / "x")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
    assert content(tmp_path / "x") == "text"


def test_content_is_flushed_before_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut finds the old file or the new one: the data reach the device before the rename, the name after."""
    flushed: list[tuple[str, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / "x").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(tmp_path / "x") as temporary:
        fill(temporary, "folder", "new")
    assert {name for name, is_there in flushed if not is_there} == {temporary.name, "deep", "x"}
    assert [name for name, is_there in flushed if is_there] == [tmp_path.name]


def test_temporary_names_belong_to_the_process(tmp_path: Path) -> None:
    """The same path gives the same name in one process, hidden and beside it."""
    name = temporary_beside(tmp_path / "x.zarr").name
    assert name == f".x.zarr{TEMPORARY_MARK}{platform.node()}-{os.getpid()}"
