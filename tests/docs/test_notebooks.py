"""The tutorials that are notebooks run in a real kernel, hold what they assert, and draw what they show."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from tests.support import processes

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
RUNNER = ROOT / "docs" / "_hooks" / "run_notebook.py"
LONG = {"benchmark_your_disk", "blocks_and_halos", "convert_and_look", "train_hybrid_parallel"}
"""What starts processes that import torch, or draws much."""
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.py"))
_THEIRS = ("RANK", "WORLD_SIZE", "PMI", "OMPI", "SLURM", "MASTER_", "MPLBACKEND")
"""How variables begin that a launcher, or a kernel, around the tests sets."""
_HEAD = """# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

"""
_SAYS_WHERE = """# %% [markdown]
# # Where
#
# [Blocks](blocks_and_halos.py) and [Python](https://www.python.org).

# %%
import sys

assert not hasattr(sys, "startup"), "the user's own settings were read"
print("runs", sys.executable)
"""
_IS_WRONG = """# %% [markdown]
# # Wrong

# %%
assert 1 == 2, "no more than that"
"""


def _run(source: Path, folder: Path, home: Path) -> Any:
    """Run a notebook with `home` for the user's home."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(_THEIRS)}
    environ |= {
        "HOME": str(home),
        "MPLCONFIGDIR": mpl.get_cachedir(),  # else fonts are looked for in each kernel
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), environ.get("PYTHONPATH")))),
    }
    words = [sys.executable, str(RUNNER), str(source), str(folder)]
    return processes.run(words, env=environ, capture_output=True, text=True, check=False)


def _cells(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return cells


def _is_blank(picture: bytes) -> bool:
    """Tell whether a picture is of one colour, or nearly."""
    with Image.open(io.BytesIO(picture)) as opened:
        values = np.asarray(opened.convert("L"), np.float64)
    return bool(values.std() < 5)


def test_the_long_ones_are_there() -> None:
    """A notebook that is renamed does not become a short one by it; each page is in the site's list."""
    assert set(NAMES) >= LONG
    pages = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"tutorials/{name}.md" in pages for name in NAMES)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in NAMES])
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    """Every cell is executed, those that assert too; what is drawn is no blank; nothing stays in the checkout."""
    before = sorted(TUTORIALS.iterdir())
    ran = _run(TUTORIALS / f"{name}.py", tmp_path / "made", tmp_path)
    assert ran.returncode == 0, ran.stderr
    made = tmp_path / "made"
    cells = [cell for cell in _cells(made / f"{name}.ipynb") if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert any(line.lstrip().startswith("assert ") for cell in cells for line in cell["source"])
    warnings = [output for cell in cells for output in cell["outputs"] if output.get("name") == "stderr"]
    assert warnings == []
    figures = sorted(made.glob("*.png"))
    assert figures
    assert not [figure.name for figure in figures if _is_blank(figure.read_bytes())]
    page = (made / f"{name}.md").read_text(encoding="utf-8")
    assert all(f"]({name}/{figure.name})" in page for figure in figures)
    assert f"]({name}.ipynb)" in page
    assert sorted(TUTORIALS.iterdir()) == before


def test_the_kernel_is_this_python(tmp_path: Path) -> None:
    """Neither a kernel that the user has installed, nor what theirs runs when it starts; links leave the copy."""
    kernel = tmp_path / ".local/share/jupyter/kernels/python3/kernel.json"
    startup = tmp_path / ".ipython/profile_default/startup/mine.py"
    for path, text in (
        (kernel, '{"argv": ["false"], "display_name": "other"}'),
        (startup, "import sys; sys.startup = 1"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    source = tmp_path / "where.py"
    source.write_text(_HEAD + _SAYS_WHERE)
    ran = _run(source, tmp_path / "made", tmp_path)
    assert ran.returncode == 0, ran.stderr
    page = (tmp_path / "made" / "where.md").read_text()
    assert f"runs {sys.executable}\n" in page
    assert "[Blocks](blocks_and_halos.py)" in page
    first, *_ = _cells(tmp_path / "made" / "where.ipynb")
    assert first["source"][-1] == "Blocks and [Python](https://www.python.org)."


def test_a_notebook_that_fails_is_an_error(tmp_path: Path) -> None:
    """Its cell and its error are told, and no page is made of it."""
    source = tmp_path / "wrong.py"
    source.write_text(_HEAD + _IS_WRONG)
    ran = _run(source, tmp_path / "made", tmp_path)
    assert ran.returncode == 1
    assert "no more than that" in ran.stderr
    assert not (tmp_path / "made").exists()


def test_a_file_without_title_is_refused(tmp_path: Path) -> None:
    """It is told before anything runs."""
    source = tmp_path / "plain.py"
    source.write_text("print('not to be run')\n")
    ran = _run(source, tmp_path / "made", tmp_path)
    assert ran.returncode == 1
    assert "plain.py: the first cell is" in ran.stderr
    assert not (tmp_path / "made").exists()
