"""Commands page: what ``voxload --help`` prints of each command, so that the page cannot differ from the program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PAGE = "reference/commands.md"
_HEAD = """# Commands

What each command prints for `--help`. Every command has `--traceback`, which shows where an error comes from; exit
statuses are 0 (done), 1 (the work failed) and 2 (the call was wrong). `voxload --install-completion` lets your shell
complete commands and options.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        text = "\n".join([_HEAD, *_sections((), threads)])
    files.append(File.generated(config, _PAGE, content=text))
    return files


def _sections(command: tuple[str, ...], threads: ThreadPoolExecutor) -> Iterator[str]:
    """Yield the sections of a command's sub-commands, one below the other."""
    found = _subcommands(_help(command))
    for name, text in zip(found, threads.map(lambda name: _help((*command, name)), found), strict=True):
        yield f"{'#' * (2 + len(command))} voxload {' '.join((*command, name))}\n\n```text\n{text}\n```\n"
        if _subcommands(text):
            yield from _sections((*command, name), threads)


def _subcommands(text: str) -> list[str]:
    """Return the names below the heading of commands."""
    _, _, below = text.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][\w-]*)", below.partition("\n\n")[0], re.MULTILINE)


def _help(command: tuple[str, ...]) -> str:
    program = str(Path(sys.executable).with_name("voxload"))
    environ = os.environ | {"TYPER_USE_RICH": "0", "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}
    words = [program, *command, "--help"]
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.strip()
