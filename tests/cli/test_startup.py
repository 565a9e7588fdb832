"""Start-up: what each call loads, in modules, which is what its time depends on."""

from __future__ import annotations

import json
import os
import runpy
import sys

import pytest

from tests.support import processes
from tests.support.commands import CALLS

_SLOW = {
    *("torch", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "zarr", "h5py", "numcodecs", "imagecodecs"),
    *("fsspec", "numba", "nibabel", "astropy", "obstore", "stamina", "tqdm", "yaml", "tensorboard", "asyncio"),
}
"""Libraries that take a tenth of a second and more, or tens of megabytes, or are of no use to help."""
_OURS = {"cli", "cli.commands", "cli.completion", "cli.description", "cli.main", "errors", "text"}
"""What of voxload a list of commands and help load."""
_HELP_MODULES = 500
"""Of Python, typer with its pydantic, and rich, which prints: 435 are loaded with Python 3.11, typer 0.29, rich 15."""
_BASH_MODULES = 320
"""Without rich: 274 are."""
_LOADS = """
import contextlib, io, json, os, sys
from voxload.cli.main import run
loaded = {}
for call in json.loads(sys.argv[1]):
    os.environ.update(call["environ"])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            run(call["words"])
    loaded[" ".join(call["words"])] = sorted(sys.modules)
print(json.dumps(loaded))
"""


def _loaded(*calls: str, **environ: str) -> dict[str, list[str]]:
    """Return the modules that are loaded after each call of one process."""
    given = json.dumps([{"words": call.split(), "environ": environ} for call in calls])
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", _LOADS, given]
    done = processes.run(command, env=plain, capture_output=True, text=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def _libraries(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def _ours(modules: list[str]) -> set[str]:
    return {name.removeprefix("voxload.") for name in modules if name.startswith("voxload.")}


_LISTS = ("--help", "", "--version", "bench --help", "catalog", "frobnicate")
_HELPS = tuple(f"{call} --help" for call in CALLS)


@pytest.fixture(scope="module")
def helps() -> dict[str, list[str]]:
    """Give what is loaded after each list, and after each help, of one process."""
    return _loaded(*_LISTS, *_HELPS)


@pytest.mark.parametrize("call", [*_LISTS, *_HELPS])
def test_help_loads_no_command(call: str, helps: dict[str, list[str]]) -> None:
    """Neither the program's nor a command's: no library of any, little else of voxload, and nothing unforeseen."""
    assert "typer" in _libraries(helps[call])
    assert not _libraries(helps[call]) & _SLOW
    assert _ours(helps[call]) == _OURS
    assert len(helps[call]) <= _HELP_MODULES


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
    (modules,) = _loaded("", **asked, **action).values()
    assert "typer._completion_classes" in modules
    assert not _libraries(modules) & _SLOW
    assert _ours(modules) == _OURS
    assert len(modules) <= (_BASH_MODULES if shell == "bash" else _HELP_MODULES)
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
