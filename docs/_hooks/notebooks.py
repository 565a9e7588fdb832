"""Notebook pages: the tutorials that are notebooks, executed, with their figures and as files to download.

A notebook is a file of jupytext's beside the other tutorials (``docs/tutorials/*.py``). What came of it is kept in
``build/notebooks/``, or where VOXLOAD_NOTEBOOKS says, until it or the program changes: so a page can be written without
waiting for all of them.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_SECTION = "tutorials"
_LINK = re.compile(r"(?<=\]\()(?P<path>[\w./-]+)\.py(?=[)#])")
_RUNNER = Path(__file__).with_name("run_notebook.py")
_PROGRAM = ("voxload", "readers", "cache")
_SUFFIXES = {".py", ".c", ".h", ".toml"}
_AT_ONCE = 2
"""Notebooks that run at the same time; each has processes of its own."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page, figures and a file to download for each notebook; one that fails ends the build."""
    root = Path(config.config_file_path).parent
    sources = sorted(Path(config.docs_dir, _SECTION).glob("*.py"))
    program = _digest(root)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for source, folder in zip(
            sources, threads.map(lambda path: _executed(root, path, program), sources), strict=True
        ):
            for made in sorted(folder.iterdir()):
                inside = made.name if made.suffix != ".png" else f"{source.stem}/{made.name}"
                files.append(File.generated(config, f"{_SECTION}/{inside}", abs_src_path=str(made)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs names them
    """Let links to notebooks lead to their pages: in a checkout they lead to the notebooks themselves."""
    here = posixpath.dirname(page.file.src_uri)

    def linked(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match["path"] + ".md"))
        is_page = target.startswith(f"{_SECTION}/") and files.get_file_from_path(target) is not None
        return f"{match['path']}.md" if is_page else match[0]

    return _LINK.sub(linked, markdown)


def _executed(root: Path, source: Path, program: str) -> Path:
    """Return the folder with what came of a notebook."""
    place = Path(os.environ.get("VOXLOAD_NOTEBOOKS", root / "build" / "notebooks"))
    digest = hashlib.sha256(program.encode() + source.read_bytes()).hexdigest()[:16]
    folder, fresh = place / f"{source.stem}-{digest}", place / f"{source.stem}.new"
    if not folder.is_dir():
        shutil.rmtree(fresh, ignore_errors=True)
        words = [sys.executable, str(_RUNNER), str(source), str(fresh)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise PluginError(f"{source.name} failed:\n{ran.stderr}")
        for old in place.glob(f"{source.stem}-*"):
            shutil.rmtree(old)
        fresh.rename(folder)
    return folder


def _digest(root: Path) -> str:
    """Return a digest of the program that notebooks run."""
    found = hashlib.sha256(sys.version.encode() + _RUNNER.read_bytes())
    for room in _PROGRAM:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in _SUFFIXES:
                found.update(path.read_bytes())
    return found.hexdigest()
