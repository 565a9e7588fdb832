"""Run one notebook: ``python docs/_hooks/run_notebook.py docs/tutorials/blocks_and_halos.py FOLDER``.

Into FOLDER go the executed notebook (``.ipynb``), its figures (``figure-1.png`` and so on) and a page of the site
(``.md``) that shows both. It exits with a status other than 0 where a cell fails.

The kernel is this interpreter, whatever kernels are installed. It reads no settings of the user's, and it is talked to
through sockets in a folder that others cannot open.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from traitlets.config import Config

LIMIT = 600
"""Seconds after which a cell hangs."""
_KERNEL = "voxload-tutorials"
_ANSI = re.compile(r"\x1b\[[\d;]*m")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")
"""A link to another page of the site, which leads nowhere from a copy."""


def main() -> None:
    """Execute the notebook and write what comes of it."""
    source, folder = map(Path, sys.argv[1:])
    notebook = jupytext.read(source)
    _check_title(notebook, source.name)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # jupytext draws them at random
    execute(notebook, source.resolve().parent)
    folder.mkdir(parents=True, exist_ok=True)
    figures: list[bytes] = []
    text = page(notebook, source.stem, figures)
    for number, figure in enumerate(figures, start=1):
        (folder / f"figure-{number}.png").write_bytes(figure)
    (folder / f"{source.stem}.md").write_text(text, encoding="utf-8")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(r"\1", cell.source)
    jupytext.write(notebook, folder / f"{source.stem}.ipynb")


def _check_title(notebook: Any, name: str) -> None:
    """Raise ValueError where a notebook does not begin with its title, which the site takes for its page."""
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        raise ValueError(f"{name}: the first cell is {first.source[:40]!r}; make it text that begins with '# '")


def execute(notebook: Any, place: Path) -> None:
    """Execute the cells of a notebook in the folder `place`; outputs are in its cells afterwards.

    Raises nbclient's CellExecutionError where a cell fails, CellTimeoutError where it hangs.
    """
    with tempfile.TemporaryDirectory(prefix="voxload-kernel-") as folder:
        spec = Path(folder) / "kernels" / _KERNEL / "kernel.json"
        spec.parent.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": argv, "display_name": _KERNEL, "language": "python"}), encoding="utf-8")
        os.environ |= {
            "JUPYTER_DATA_DIR": folder,
            "JUPYTER_RUNTIME_DIR": folder,
            "JUPYTER_CONFIG_DIR": folder,
            "IPYTHONDIR": folder,
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # its debugger warns of Python's frozen modules
        }
        NotebookClient(
            notebook,
            kernel_name=_KERNEL,
            timeout=LIMIT,
            resources={"metadata": {"path": str(place)}},
            coalesce_streams=True,
            # A short name: paths of sockets have 107 bytes at most.
            config=Config({"KernelManager": {"transport": "ipc", "connection_file": f"{folder}/k.json"}}),
        ).execute()


def page(notebook: Any, name: str, figures: list[bytes]) -> str:
    """Return a notebook as Markdown; its figures are added to `figures`, and are named from 1 on.

    Raises ValueError where an output is none that a page can show.
    """
    first, *rest = notebook.cells
    parts = [first.source, f"[Download this notebook]({name}.ipynb){{ .md-button download }}"]
    heading = ""
    for cell in rest:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            heading = (_HEADING.findall(cell.source) or [heading])[-1]
            continue
        parts.append(_fenced(cell.source, "bash" if cell.source.startswith("%%bash") else "python"))
        for output in cell.outputs:
            parts += _shown(output, f"{name}/figure", heading, figures)
    return "\n\n".join(parts) + "\n"


def _shown(output: Any, stem: str, heading: str, figures: list[bytes]) -> Iterator[str]:
    """Yield an output of a cell as Markdown."""
    if output.output_type == "stream":
        yield _fenced(_ANSI.sub("", output.text).rstrip(), ".text .voxload-output")
        return
    data = output.get("data", {})
    if "image/png" in data:
        figures.append(base64.b64decode(data["image/png"]))
        yield f"![{heading}]({stem}-{len(figures)}.png)"
    elif "text/html" in data:
        yield f'<div class="voxload-output" markdown="0">\n{data["text/html"]}\n</div>'
    elif "text/plain" in data:
        yield _fenced(data["text/plain"], ".text .voxload-output")
    else:
        raise ValueError(f"{stem}: no page can show {sorted(data) or output.output_type}")


def _fenced(text: str, words: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{words if '.' not in words else f' {{ {words} }}'}\n{text}\n{fence}"


if __name__ == "__main__":
    main()
