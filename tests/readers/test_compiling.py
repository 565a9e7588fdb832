"""Compiled kernels on disk: many processes at once, changed sources, disks that take nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.ranks import RANK, run_ranks

PARTS = """
from voxload.readers.compiling import part

@part
def scaled(value):
    return value * {factor}
"""
KERNELS = """
import sys
from numba import float32, float64, int32, int64
from kernels.parts import scaled
from voxload.readers.compiling import compiled

def scale(value):
    return scaled(value)

def adding(constant):
    def add(value):
        return value + constant
    return add

if __name__ == "__main__":
    for kind in (int32, int64, float32, float64)[int(sys.argv[1]):int(sys.argv[2])]:
        print(compiled(kind, returns=kind)(scale)(7), end=" ")
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        print(compiled(int64, returns=int64)(adding(number))(40), end=" ")
"""
RUN = """
import io, json, resource, runpy, sys
from contextlib import redirect_stdout
import numba, voxload.readers  # which have taken their kernels from the usual place
spans, numba.config.CACHE_DIR, is_full = json.loads(sys.argv[2]), sys.argv[3], sys.argv[4] == "full"
sys.argv[1:] = map(str, spans[int(sys.argv[1])])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
said = io.StringIO()  # what is printed goes to a file, too
try:
    with redirect_stdout(said):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0 if is_full else most, most))
        runpy.run_module("kernels.scaling", run_name="__main__")
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
print(said.getvalue(), end="")
"""
EACH = ("21 40 ", "21 41 ", "21.0 42 ", "21.0 43 ")


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Return a package with one kernel for four types, and one for four constants."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "parts.py").write_text(PARTS.format(factor=3))
    (folder / "scaling.py").write_text(KERNELS)
    return folder


def _run(kernels: Path, *spans: tuple[int, int], is_full: bool = False) -> list[str]:
    """Compile and run kernels, at once in a process for each span of their numbers; return what each printed."""
    folder = kernels.parent
    (folder / "run.py").write_text(RUN)
    words = (RANK, json.dumps(spans), folder / "kept", "full" if is_full else "free")
    ended = run_ranks(folder / "run.py", *words, ranks=len(spans))
    assert not any(process.status for process in ended), [process.errors for process in ended]
    return [process.out for process in ended]


def _kept(kernels: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime_ns for path in (kernels.parent / "kept").rglob("*.nbc")}


@pytest.mark.long
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.long)])
def test_many_processes_keep_their_own_signatures(kernels: Path, count: int) -> None:
    """Whatever is compiled at the same moment, no index names two kernels, and every later process finds its own."""
    said = _run(kernels, *((number, number + 1) for number in range(count) for _ in range(2)))
    assert said == [text for text in EACH[:count] for _ in range(2)]
    kept = _kept(kernels)
    assert len(kept) == len(list((kernels.parent / "kept").rglob("*.nbi"))) == 2 * count
    (again,) = _run(kernels, (0, count))
    assert again.split() == [text.split()[part] for part in (0, 1) for text in EACH[:count]]
    assert _kept(kernels) == kept, "compiled again"


def test_a_changed_part_is_compiled_anew(kernels: Path) -> None:
    """Code that was made from an older part in another file is not taken."""
    assert _run(kernels, (0, 1)) == ["21 40 "]
    parts = kernels / "parts.py"
    parts.write_text(PARTS.format(factor=5))
    later = parts.stat().st_mtime + 10
    os.utime(parts, (later, later))  # Python's own cache tells sources of one size apart by whole seconds
    assert _run(kernels, (0, 1)) == ["35 40 "]


def test_a_full_disk_costs_time_alone(kernels: Path) -> None:
    """Where no byte can be written, every process compiles for itself."""
    assert _run(kernels, (0, 1), is_full=True) == [EACH[0]]
    assert not _kept(kernels)


def test_half_a_file_is_not_run(kernels: Path) -> None:
    """What a node that went down left empty is compiled for the process alone."""
    assert _run(kernels, (0, 1)) == [EACH[0]]
    for path in _kept(kernels):
        path.write_bytes(b"")
    assert _run(kernels, (0, 1)) == [EACH[0]]
