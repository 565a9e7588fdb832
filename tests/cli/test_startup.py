"""Start-up: what each call loads, in modules, which is what its time depends on."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
import zarr

from tests.support import processes
from tests.support.commands import CALLS
from voxload.catalog import Catalog, Entry

_SLOW = {
    *("torch", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "zarr", "h5py", "numcodecs", "imagecodecs"),
    *("fsspec", "numba", "nibabel", "astropy", "obstore", "stamina", "tqdm", "yaml", "tensorboard", "asyncio"),
}
"""Libraries that take a tenth of a second and more, or tens of megabytes, or are of no use to help."""
_OURS = {"cli", "cli.commands", "cli.completion", "cli.description", "cli.main", "errors", "text"}
"""What of voxload a list of commands and help load."""
_HELP_MODULES = 390
"""Of Python, typer and rich, which prints: 335 are loaded with Python 3.11, typer 0.29 and rich 15."""
_MODULES = 500
"""With pydantic too, which typer checks values with: 435 are."""
_BASH_MODULES = 320
"""Without rich: 274 are."""
_LOADS = """
import contextlib, io, json, os, sys
from voxload.cli.main import run
loaded = {}
for call in json.loads(sys.argv[1]):
    os.environ.update(call["environ"])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            status = run(call["words"])
        except SystemExit as left:
            status = left.code
    assert status in call["ends"], status
    loaded[" ".join(call["words"])] = sorted(sys.modules)
print(json.dumps(loaded))
"""


def _loaded(
    *calls: str, ends: tuple[int, ...] = (0,), environ: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Return the modules that are loaded after each call of one process, which ends with one of these statuses."""
    given = json.dumps([{"words": call.split(), "environ": environ or {}, "ends": ends} for call in calls])
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", _LOADS, given]
    done = processes.run(command, env=plain, capture_output=True, text=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def _libraries(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def _ours(modules: list[str]) -> set[str]:
    return {name.removeprefix("voxload.") for name in modules if name.startswith("voxload.")}


_LISTS = ("", "--version", "catalog", "frobnicate", "bench frobnicate")
"""Calls that end in a list of commands, or in less."""
_HELPS = ("--help", "--traceback --help", "bench --help", "bench --help run", *(f"{call} --help" for call in CALLS))


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Give what is loaded after each call: of one process for all helps, and of another for all lists."""
    return _loaded(*_HELPS) | _loaded(*_LISTS, ends=(0, 2))


@pytest.mark.parametrize("call", [*_LISTS, *_HELPS])
def test_help_loads_no_command(call: str, loaded: dict[str, list[str]]) -> None:
    """Neither the program's nor a command's: no library of any, little else of voxload, and nothing unforeseen."""
    modules = loaded[call]
    assert "typer" in _libraries(modules)
    assert not _libraries(modules) & _SLOW
    assert _ours(modules) == _OURS
    if call in _HELPS:
        assert "pydantic" not in modules
        assert len(modules) <= _HELP_MODULES
    else:
        assert len(modules) <= _MODULES


def test_the_package_alone_loads_nothing() -> None:
    """``import voxload`` is the names; what they stand for comes when it is used."""
    program = "import sys; before = set(sys.modules); import voxload; print(*sorted(set(sys.modules) - before))"
    new = processes.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.split()
    assert "voxload" in new
    assert not _ours(new)
    assert not _libraries(new) & _SLOW
    assert len(new) <= 20


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("typed", ["voxload ", "voxload train --", "voxload bench run --wa", "voxload plan unet3d --"])
def test_completion_loads_no_command(shell: str, typed: str) -> None:
    """A press of Tab waits for Python, typer and a description; zsh and fish for rich too, which shows meanings."""
    words = len(typed.split()) - (not typed.endswith(" "))
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(words)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": typed}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_VOXLOAD_COMPLETE": f"complete_{shell}"}
    (modules,) = _loaded("", environ=asked | action).values()
    assert "typer._completion_classes" in modules
    assert not _libraries(modules) & _SLOW
    assert _ours(modules) == _OURS
    assert len(modules) <= (_BASH_MODULES if shell == "bash" else _MODULES)
    assert shell != "bash" or "rich" not in _libraries(modules)


def test_the_module_is_the_program() -> None:
    """``python -m voxload`` says what the script says, by the same name."""
    started = "from voxload.cli.start import main; main()"
    for words in (["--help"], ["info", "--help"], ["frobnicate"]):
        one, other = (
            processes.run([sys.executable, *how, *words], check=False, capture_output=True, text=True)
            for how in (["-m", "voxload"], ["-c", started])
        )
        assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
        assert "__main__" not in one.stdout + one.stderr
        assert "voxload" in one.stdout + one.stderr


def test_a_spawned_process_does_not_run_the_program_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiprocessing imports the main module in its children, by another name."""
    monkeypatch.setattr("sys.argv", ["voxload", "frobnicate"])
    runpy.run_module("voxload.__main__", run_name="__mp_main__")
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("voxload.__main__", run_name="__main__")
    assert caught.value.code == 2


_ALWAYS = {"numpy", "h5py", "imagecodecs", "tqdm"}
"""What readers of all formats and their terminal load: HDF5 is asked whether it knows a file, too."""
_ZARR = {"zarr", "numcodecs", "fsspec", "asyncio", "yaml"}
"""zarr-python and what it brings."""
_NIBABEL = {"nibabel", "scipy"}
"""nibabel, which looks for others."""
_SOURCES = {
    "cube.npy": (_ALWAYS, 760),
    "cube.h5": (_ALWAYS, 760),
    "cube.zarr": (_ALWAYS | _ZARR, 990),
    "cube.nii": (_ALWAYS | _NIBABEL, 1090),
    "catalog.parquet": (_ALWAYS | {"pyarrow"}, 810),
}
"""Libraries that info of each source may load, and how many modules: a tenth more than with constraints.txt."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one volume in each format."""
    folder = tmp_path_factory.mktemp("sources")
    cube = np.arange(8**3, dtype=np.int16).reshape(8, 8, 8)
    np.save(folder / "cube.npy", cube)
    with h5py.File(folder / "cube.h5", "w") as file:
        file["volume"] = cube
    zarr.create_array(folder / "cube.zarr", data=cube)
    nibabel.save(nibabel.Nifti1Image(cube, np.eye(4)), folder / "cube.nii")  # type: ignore[no-untyped-call]
    row = Entry("a", "cube.npy", "", shape=(1, 8, 8, 8), dtype="<i2", axes="DHW", stored_bytes=cube.nbytes)
    Catalog.from_entries([row], folder).write(folder / "catalog.parquet")
    return folder


@pytest.mark.parametrize("source", _SOURCES)
def test_info_loads_what_its_source_needs(source: str, sources: Path) -> None:
    """Neither torch nor what draws, nor the libraries of other formats, of tables or of storages behind URLs."""
    allowed, most = _SOURCES[source]
    (modules,) = _loaded(f"info {sources / source}").values()
    assert _libraries(modules) & _SLOW <= allowed
    assert allowed - _libraries(modules) <= {"scipy"}
    assert len(modules) <= most
    assert not {"convert.run", "convert.write.writer", "loader", "engine", "training"} & _ours(modules)
