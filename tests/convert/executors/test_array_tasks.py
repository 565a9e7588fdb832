"""Array tasks: many processes that share a conversion end where one would, whatever becomes of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support import scripts
from voxload.catalog.places import CATALOG_NAME
from voxload.catalog.table import Catalog
from voxload.convert import ConvertOptions, Packing, Share, convert
from voxload.convert.write.lock import locked
from voxload.errors import UsageError

TASKS, AT_ONCE, VOLUMES, SHAPE = 32, 8, 40, (16, 12, 8)
RUNNER = """
import json, os, signal, sys
from multiprocessing import connection, get_context
from voxload.convert import ConvertOptions, Packing, Share, convert

src, dst, at_once, killed, waiting = sys.argv[1:6]
fork = get_context("fork")

def task(number, pipe):
    os.environ |= {"SLURM_ARRAY_TASK_ID": str(number + 1), "SLURM_ARRAY_TASK_MIN": "1"}
    def show(progress):
        if number == int(killed):
            os.kill(os.getpid(), signal.SIGKILL)
        if number == int(waiting):
            sys.stdout.write("waiting\\n")
            sys.stdout.flush()
            signal.pause()
    options = ConvertOptions(
        chunks=(8, 8, 8), workers=1, pack=Packing.NEVER, checksums=True, share=Share.from_environment(os.environ)
    )
    try:
        report = convert(src, dst, options=options, progress=show)
        pipe.send({"task": number, "converted": len(report.converted), "catalogued": report.is_catalogued})
    except Exception as error:
        pipe.send({"task": number, "error": f"{type(error).__name__}: {error}"})

coming, running = [int(number) for number in sys.argv[6:]], {}
while coming or running:
    while coming and len(running) < int(at_once):
        ours, theirs = fork.Pipe(duplex=False)
        number = coming.pop(0)
        running[ours] = process = fork.Process(target=task, args=(number, theirs))
        process.start()
        theirs.close()
    for ours in connection.wait(list(running)):
        process = running.pop(ours)
        try:
            found = ours.recv()
        except EOFError:
            found = {"error": "died"}
        process.join()
        print(json.dumps({**found, "exit": process.exitcode}), flush=True)
"""
"""Array tasks, each a process, a few at a time; one may be killed at its first slab, and one stop there."""


@dataclass(frozen=True)
class Outcome:
    """What became of one task."""

    exit: int
    """Its exit status."""
    task: int = -1
    """Its number."""
    converted: int = 0
    """Samples that it converted."""
    catalogued: bool = False
    """Whether it wrote the catalogue."""
    error: str = ""
    """What it raised."""


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of raw cubes, a few more than tasks."""
    folder = tmp_path_factory.mktemp("raw")
    for number in range(VOLUMES):
        cube = np.random.default_rng(number).normal(size=SHAPE).astype("<f4")
        np.save(folder / f"cube{number:02}.npy", cube)
    return folder


@contextmanager
def _running(
    raw: Path, out: Path, tasks: Sequence[int], *, killed: int = -1, waiting: int = -1
) -> Iterator[Iterator[str]]:
    """Run array tasks; yield the lines that they write, the first of which are there when the block begins."""
    environment = os.environ | {"SLURM_ARRAY_TASK_COUNT": str(TASKS), "SLURM_ARRAY_TASK_STEP": "1"}
    numbers = [str(number) for number in (AT_ONCE, killed, waiting, *tasks)]
    with scripts.started(RUNNER, raw, out, *numbers, environ=environment) as process:
        yield iter(process.stdout)


def _outcomes(lines: Iterator[str]) -> list[Outcome]:
    return [Outcome(**json.loads(line)) for line in lines]


def _run(raw: Path, out: Path, tasks: Sequence[int], *, killed: int = -1) -> list[Outcome]:
    with _running(raw, out, tasks, killed=killed) as lines:
        return _outcomes(lines)


def _files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, hidden or not, by its name in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _options(share: Share | None = None) -> ConvertOptions:
    return ConvertOptions(chunks=(8, 8, 8), workers=1, pack=Packing.NEVER, checksums=True, share=share)


@pytest.mark.long
def test_tasks_end_where_one_run_does(tmp_path: Path, raw: Path) -> None:
    """Of 32 tasks one is killed; when it has run again, every file and the catalogue are those of a single run."""
    convert(raw, tmp_path / "one", options=_options())
    out = tmp_path / "tasks"
    first = _run(raw, out, range(TASKS), killed=5)
    assert [one.exit for one in first if one.error] == [-signal.SIGKILL]
    assert sum(one.converted for one in first) == VOLUMES - 2
    assert not any(one.catalogued for one in first)
    assert not (out / CATALOG_NAME).exists()
    assert _run(raw, out, [5]) == [Outcome(0, 5, converted=2, catalogued=True)]
    assert _files(out) == _files(tmp_path / "one")


@pytest.mark.long
def test_who_is_refused_meanwhile(tmp_path: Path, raw: Path) -> None:
    """While a task is under way: the same one, tasks of another number, and a single conversion are refused."""
    out = tmp_path / "out"
    with _running(raw, out, [3], waiting=3) as lines:
        assert next(lines) == "waiting\n"
        for share in (Share(3, TASKS), Share(3, TASKS + 1), None):
            with pytest.raises(UsageError, match=r"another conversion into it, (process|32 tasks)"):
                convert(raw, out, options=_options(share))
        assert convert(raw, out, options=_options(Share(4, TASKS))).skipped == ()
    report = convert(raw, out, options=_options())
    assert report.is_catalogued
    assert not [name for name in _files(out) if name.startswith(".")]


@pytest.mark.long
def test_marks_of_another_plan_do_not_count(tmp_path: Path, raw: Path) -> None:
    """A task that was told otherwise, or is under way again, has not done its share of this conversion."""
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted(raw.iterdir())[:7]:
        shutil.copy(path, few)
    raw, halves = few, [Share(0, 2), Share(1, 2)]
    other = ConvertOptions(chunks=(4, 4, 4), workers=1, pack=Packing.NEVER, share=halves[0])
    assert not convert(raw, tmp_path / "out", options=other).is_catalogued
    assert not convert(raw, tmp_path / "out", options=_options(halves[1])).is_catalogued
    report = convert(raw, tmp_path / "out", options=_options(halves[0]))
    assert report.is_catalogued
    assert not [name for name in _files(tmp_path / "out") if name.startswith(".")]
    convert(raw, tmp_path / "one", options=_options())
    assert _files(tmp_path / "out") == _files(tmp_path / "one")
    # All again: nothing is converted, and each finds the catalogue as it should be.
    for half in halves:
        again = convert(raw, tmp_path / "out", options=_options(half))
        assert (again.converted, again.is_catalogued) == ((), True)
        assert _files(tmp_path / "out") == _files(tmp_path / "one")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give two cubes, and the folder of a conversion of them."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "raw").mkdir()
    for number in range(2):
        np.save(folder / "raw" / f"cube{number}.npy", np.random.default_rng(number).normal(size=SHAPE).astype("<f4"))
    convert(folder / "raw", folder / "out", options=_options())
    return folder / "raw", folder / "out"


LAST = """
import os, signal, sys
from pathlib import Path
from voxload.convert import ConvertOptions, Packing, Share, convert

removed, unlink = 0, Path.unlink

def count(path, missing_ok=False):
    global removed
    unlink(path, missing_ok=missing_ok)
    removed += path.name.endswith(".done")
    if removed == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

def options(task):
    share = Share(task, 2)
    return ConvertOptions(chunks=(8, 8, 8), workers=1, pack=Packing.NEVER, checksums=True, share=share)

convert(sys.argv[1], sys.argv[2], options=options(1))
Path.unlink = count
convert(sys.argv[1], sys.argv[2], options=options(0))
"""
"""Two tasks; the last is killed when so many marks were removed: the first is its own of an earlier run."""


@pytest.mark.long
@pytest.mark.parametrize("removed", [pytest.param(2, marks=pytest.mark.long), 3])
def test_a_last_task_killed_among_the_marks_is_the_last_again(
    tmp_path: Path, pair: tuple[Path, Path], removed: int
) -> None:
    """The catalogue is there: run again alone, the task says so and leaves no mark of its own."""
    raw, expected = pair
    out = tmp_path / "out"
    assert scripts.run(LAST, raw, out, str(removed), check=False).returncode == -signal.SIGKILL
    assert (out / CATALOG_NAME).exists()
    report = convert(raw, out, options=_options(Share(0, 2)))
    assert (report.converted, report.is_catalogued) == ((), True)
    assert _files(out) == _files(expected)


def test_a_catalogue_of_less_is_not_the_last_word(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """With a volume missing, other rows or a damaged catalogue, a task that runs again waits for the others."""
    raw, out = tmp_path / "raw", tmp_path / "out"
    shutil.copytree(pair[0], raw)
    shutil.copytree(pair[1], out)
    for change in (
        lambda: (out / CATALOG_NAME).write_bytes(b"PAR1"),
        lambda: Catalog.read(out).select(["cube0"]).write(out / CATALOG_NAME),
        lambda: np.save(raw / "cube2.npy", np.zeros(SHAPE, "<f4")),
    ):
        change()
        assert not convert(raw, out, options=_options(Share(0, 2))).is_catalogued
        convert(raw, out, options=_options())


def test_lock_of_a_killed_conversion_misleads_nobody(tmp_path: Path) -> None:
    """What a dead holder said in its lock file is no reason to refuse tasks, nor they a reason to refuse each other."""
    (tmp_path / ".voxload-convert.lock").write_text("process 1\n")
    with locked(tmp_path, Share(0, 3)):
        assert (tmp_path / ".voxload-convert.lock").read_text() == "3 tasks\n"
        with locked(tmp_path, Share(1, 3)), pytest.raises(UsageError, match="3 tasks"), locked(tmp_path, Share(0, 2)):
            raise AssertionError
        assert (tmp_path / ".voxload-convert.lock").exists()
    assert not list(tmp_path.iterdir())


def _slurm(number: int, first: int, last: int, *, count: int, step: int = 1) -> Mapping[str, str]:
    """Return what Slurm says to one task of an array."""
    return {
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(last),
        "SLURM_ARRAY_TASK_STEP": str(step),
        "SLURM_ARRAY_TASK_COUNT": str(count),
    }


@pytest.mark.parametrize(
    ("environment", "share"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "7"}, None),
        (_slurm(0, 0, 31, count=32), Share(0, 32)),
        (_slurm(32, 1, 32, count=32), Share(31, 32)),
        (_slurm(16, 4, 28, count=5, step=6), Share(2, 5)),
        (_slurm(7, 7, 7, count=1), Share(0, 1)),
        (_slurm(7, 7, 7, count=1, step=4), Share(0, 1)),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4"}, Share(3, 4)),
    ],
)
def test_share_of_an_array_task(environment: Mapping[str, str], share: Share | None) -> None:
    """Slurm's variables say which task this is, wherever the array begins and whatever its step."""
    assert Share.from_environment(environment) == share


@pytest.mark.parametrize(
    "environment",
    [
        _slurm(3, 3, 8, count=3),  # --array=3,7,8
        _slurm(8, 3, 8, count=3),
        _slurm(5, 4, 28, count=5, step=6),
        _slurm(1, 0, 3, count=4, step=0),
        _slurm(9, 0, 3, count=4),
        _slurm(0, 1, 4, count=4),
        _slurm(0, 0, 0, count=0),
        {"SLURM_ARRAY_TASK_ID": "3"},
        {"SLURM_ARRAY_TASK_ID": "many", "SLURM_ARRAY_TASK_COUNT": "4"},
    ],
)
def test_arrays_that_make_no_sense(environment: Mapping[str, str]) -> None:
    """Lists with gaps, and nonsense, are refused by every task, with the variables and the way out."""
    with pytest.raises(UsageError, match=r"SLURM_ARRAY_TASK_ID=.*; say --task and --tasks"):
        Share.from_environment(environment)


def test_shares_take_everything_once() -> None:
    """Every volume is one task's, and a share that is none is refused."""
    shares = [Share(task, 5) for task in range(5)]
    assert [sum(share.takes(number) for share in shares) for number in range(23)] == [1] * 23
    for task, tasks in ((5, 5), (-1, 5), (0, 0)):
        with pytest.raises(UsageError, match="--task"):
            Share(task, tasks)
