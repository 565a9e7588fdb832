"""The site: every public name is described, every page is reached, and what people search for is found."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import voxload
from tests.support import processes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS) for page in DOCS.rglob("*.md") if "_hooks" not in page.parts)
GENERATED = Path("reference/commands.md")
DESCRIBED = [
    name
    for page in PAGES
    for name in re.findall(r"^::: (\S+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
]
SECTIONS = ("tutorials", "guides", "explanation", "reference")
SEARCHED = ("halo", "Slurm", "NIfTI", "resume", "out of memory")


def public_names() -> list[str]:
    """Return what `voxload` and its public modules offer, by the shortest name."""
    found = []
    for name in voxload.__all__:
        offered = getattr(voxload, name)
        if not isinstance(offered, ModuleType):
            found.append(f"voxload.{name}")
            continue
        inside = [one for one in vars(offered) if not one.startswith("_")]
        found += [f"{offered.__name__}.{one}" for one in getattr(offered, "__all__", inside) if one in vars(offered)]
    return [name for name in found if not is_private_module(name)]


def is_private_module(name: str) -> bool:
    """Tell whether a name is that of a module that nobody offers: one that another file of the package needs."""
    module, _, one = name.rpartition(".")
    found = getattr(import_module(module), one)
    return isinstance(found, ModuleType) and one not in getattr(import_module(module), "__all__", ())


def test_each_public_name_is_described_once() -> None:
    """In the pages of classes and functions, which mkdocstrings fills."""
    counted = Counter(DESCRIBED)
    assert [name for name, count in counted.items() if count > 1] == []
    assert sorted(set(public_names()) - counted.keys()) == []


@pytest.mark.parametrize("name", DESCRIBED)
def test_what_is_described_has_docstrings(name: str) -> None:
    """It itself, and whatever of it is public and is not another library's."""
    module, _, one = name.rpartition(".")
    try:
        found = getattr(import_module(module), one)
    except AttributeError:
        found = import_module(name)
    if not (inspect.isclass(found) or inspect.isfunction(found) or inspect.ismodule(found)):
        assert says_of_itself(module, one), name  # an alias of a type: a string stands below it
        return
    assert inspect.getdoc(found), name
    for inner, member in vars(found).items() if inspect.isclass(found) else ():
        if not inner.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert inspect.getdoc(getattr(found, inner)), f"{name}.{inner}"


def says_of_itself(package: str, name: str) -> bool:
    """Tell whether a file of a package defines a name with a docstring below."""
    folder = Path(str(import_module(package).__file__)).parent
    below = re.compile(rf'^{name}\b[^\n]* = [^\n]*\n"""\w', re.MULTILINE)
    return any(below.search(path.read_text(encoding="utf-8")) for path in folder.glob("*.py"))


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_lead_to_their_pages(section: str) -> None:
    """The first page of a section links to each of its others, and the navigation has them all."""
    first = (DOCS / section / "index.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in [*PAGES, GENERATED]:
        if page.parts[0] != section or page.name == "index.md":
            continue
        assert f"({page.relative_to(section).as_posix()})" in first, page
        assert f": {page.as_posix()}\n" in navigation, page


class _Words(HTMLParser):
    """The text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        """Keep it."""
        self.found.append(data)


@cache
def _built(folder: Path) -> tuple[Path, str]:
    """Build the site strictly once; return where it is and what was said. Nothing is written into the tree."""
    place = folder / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(place)]
    environ = os.environ | {"VOXLOAD_NOTEBOOKS": str(folder / "notebooks")}
    pipes: Any = {"env": environ, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ran = processes.run(words, cwd=ROOT, text=True, check=False, **pipes)
    assert ran.returncode == 0, ran.stdout
    return place, ran.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site."""
    return _built(tmp_path_factory.mktemp("site"))[0]


@pytest.mark.long
@pytest.mark.timeout(3 * processes.LIMIT)
def test_the_site_is_built_strictly_and_searched(site: Path) -> None:
    """No link is dead; words that people search for lead to pages; each class has its place."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    for wanted in SEARCHED:
        assert any(wanted.lower() in f"{one['title']} {one['text']}".lower() for one in index["docs"]), wanted
    for name in DESCRIBED:
        places = [page for page in site.rglob("*.html") if f'id="{name}"' in page.read_text(encoding="utf-8")]
        assert len(places) == 1, name
    text = _Words()
    text.feed((site / "reference" / "commands" / "index.html").read_text(encoding="utf-8"))
    assert "--max-memory" in "".join(text.found)
    scripts = [page.parent.name for page in (site / "source" / "bench").glob("*/index.html")]
    assert "locality.py" in scripts


@pytest.mark.long
def test_a_dead_link_ends_the_build(tmp_path: Path) -> None:
    """To a page, to a place in one, and to a file of the repository."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("plugins:")[0]
        + "validation: {links: {not_found: warn, anchors: warn}}\nnav: [{Home: index.md}]\n".replace("'", ""),
        encoding="utf-8",
    )
    (tmp_path / "docs" / "_hooks").symlink_to(DOCS / "_hooks")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "here.py").write_text("1\n", encoding="utf-8")
    configured = (tmp_path / "mkdocs.yml").read_text(encoding="utf-8").replace("  - docs/_hooks/commands.py\n", "")
    (tmp_path / "mkdocs.yml").write_text(configured, encoding="utf-8")
    for link, holds in (("../bench/here.py", True), ("gone.md", False), ("#gone", False), ("../bench/gone.py", False)):
        (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n[it]({link})\n", encoding="utf-8")
        words = [sys.executable, "-m", "mkdocs", "build"]
        ran = processes.run(
            words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert (ran.returncode == 0) is holds, f"{link}\n{ran.stdout}"
