"""Completion: what shells are told, by the scripts that they are given."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from voxload.cli.commands import COMMANDS, GROUPS
from voxload.cli.completion import words_before

_BASH = {"PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null"}
_SCRIPT = 'eval "$(_VOXLOAD_COMPLETE=source_bash voxload)"; '


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with the program of this tree on its path, and an empty home."""
    folder = tmp_path_factory.mktemp("home")
    program = folder / "voxload"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m voxload "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}


def _bash(typed: str, environ: dict[str, str]) -> list[str]:
    """Return what bash is offered behind what was typed; a blank at its end begins a word."""
    words = len(typed.split()) - (not typed.endswith(" "))
    asked = {"_VOXLOAD_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(words)}
    done = processes.run(["voxload"], env=environ | asked, capture_output=True, text=True)
    assert done.stderr == ""
    offered: str = done.stdout
    return offered.split()


_OFFERED = {
    "voxload ": [*COMMANDS, *GROUPS],
    "voxload co": ["convert"],
    "voxload --ver": ["--version"],
    "voxload catalog ": list(GROUPS["catalog"].commands),
    "voxload --traceback bench r": ["run", "report"],
    "voxload plan ": list(GROUPS["plan"].commands),
    "voxload plan unet3d --expl": ["--explain"],
    "voxload serve dr": ["drain"],
    "voxload serve --ring-h": ["--ring-host"],
    "voxload convert a b --append --pack ": ["auto", "always", "never"],
    "voxload info a.h5 --boundary p": ["periodic"],
    "voxload info ": [],
    "voxload frobnicate ": [*COMMANDS, *GROUPS],
}


@pytest.mark.parametrize("typed", _OFFERED)
def test_bash_is_offered_what_may_come(typed: str, environ: dict[str, str]) -> None:
    """Commands, their commands, options and the values of options; for a path nothing, then bash offers files."""
    assert _bash(typed, environ) == _OFFERED[typed]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_are_offered_the_same_with_its_meaning(shell: str, environ: dict[str, str]) -> None:
    """Each name comes with the beginning of its help."""
    asked = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_VOXLOAD_COMPLETE": f"complete_{shell}"}
    for typed, name, meaning in (
        ("voxload bench comp", "compare", "Say of each figure"),
        ("voxload verify catalog.parquet --wr", "--write", "Record checksums"),
        ("voxload serve ", "status", "Say what the service"),
    ):
        done = processes.run(
            ["voxload"], env=environ | asked | {"_TYPER_COMPLETE_ARGS": typed}, capture_output=True, text=True
        )
        assert any(name in line and meaning in line for line in done.stdout.splitlines())
        assert "convert" not in done.stdout


def test_words_before_the_one_that_is_completed() -> None:
    """None where no shell asks: then the arguments are a call."""
    zsh = {"_VOXLOAD_COMPLETE": "complete_zsh"}
    assert words_before({"COMP_WORDS": "voxload info", "COMP_CWORD": "1"}) is None
    assert words_before(zsh | {"_TYPER_COMPLETE_ARGS": "voxload bench ru"}) == ["bench"]
    assert words_before(zsh | {"_TYPER_COMPLETE_ARGS": "voxload bench run "}) == ["bench", "run"]
    assert words_before(zsh | {"COMP_WORDS": "voxload bench run", "COMP_CWORD": "2"}) == ["bench"]


def test_a_real_bash_completes_at_tab(environ: dict[str, str]) -> None:
    """With the script that the program prints, typed into a terminal."""
    terminal, its_own = pty.openpty()
    streams: dict[str, Any] = {"stdin": its_own, "stdout": its_own, "stderr": its_own}
    try:
        with processes.started(["bash", "--norc", "--noprofile", "-i"], env=environ | _BASH, **streams) as process:
            os.write(terminal, f'{_SCRIPT}echo re""ady\n'.encode())
            assert _read(terminal, "ready\r\n")
            os.write(terminal, b"voxload bench rep\t")
            assert _read(terminal, "voxload bench report ")
            os.write(terminal, b"--outp\t")
            assert _read(terminal, "--output ")
            process.kill()
    finally:
        os.close(terminal)
        os.close(its_own)


def _read(terminal: int, wanted: str) -> bool:
    """Read until bash has shown something; False where nothing comes any more."""
    shown = b""
    while wanted.encode() not in shown:
        if not select.select([terminal], [], [], processes.LIMIT)[0]:
            return False
        shown += os.read(terminal, 4096)
    return True


def test_it_is_set_up_by_the_program(environ: dict[str, str]) -> None:
    """--show-completion prints for the shell that it runs in what --install-completion has it read at its start."""
    shown = processes.run(
        ["bash", "-c", "voxload --show-completion; true"], env=environ, capture_output=True, text=True
    ).stdout
    assert "complete -o default -F _voxload_completion voxload" in shown
    processes.run(["bash", "-c", "voxload --install-completion; true"], env=environ)
    home = Path(environ["HOME"])
    (script,) = (home / ".bash_completions").iterdir()
    assert script.read_text().strip() == shown.strip()
    assert str(script) in (home / ".bashrc").read_text()


@pytest.mark.parametrize(
    ("shell", "words"), [("zsh", "compdef _voxload_completion voxload"), ("fish", "complete --command voxload")]
)
def test_other_shells_are_given_scripts(shell: str, words: str, environ: dict[str, str]) -> None:
    """As typer writes them."""
    asked = environ | {"_VOXLOAD_COMPLETE": f"source_{shell}"}
    assert words in processes.run(["voxload"], env=asked, capture_output=True, text=True).stdout
