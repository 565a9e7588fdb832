"""packaging: what pyproject.toml promises is what the tree holds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """Parse pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_named(project: dict[str, Any]) -> None:
    """The wheel holds the listed packages and no others, so the list is the tree, sub-packages too."""
    folders = project["tool"]["setuptools"]["package-dir"]
    found = set()
    for package, folder in folders.items():
        for mark in (ROOT / folder).rglob("__init__.py"):
            inside = mark.parent.relative_to(ROOT / folder)
            if not any((ROOT / folder / part).is_symlink() for part in (inside, *inside.parents)):
                found.add(".".join((package, *inside.parts)))
    assert sorted(found) == project["tool"]["setuptools"]["packages"]


def test_every_folder_with_code_is_a_package(project: dict[str, Any]) -> None:
    """A folder of modules without __init__.py would be left out of the wheel."""
    for folder in project["tool"]["setuptools"]["package-dir"].values():
        for module in (ROOT / folder).rglob("*.py"):
            assert (module.parent / "__init__.py").is_file(), module


@pytest.mark.parametrize("name", ["readers", "cache"])
def test_the_links_are_there(name: str) -> None:
    """A plain checkout sees readers/ and cache/ inside the package, by links that move with it."""
    link = ROOT / "voxload" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert link.samefile(ROOT / name)


def test_what_the_package_data_name_is_there(project: dict[str, Any]) -> None:
    """Type checkers find the marker that says: typed; and each room the files that it reads."""
    data = {
        "voxload": ["py.typed"],
        "voxload.benchmark.dlio": ["workload/*.yaml"],
        "voxload.cli": ["descriptions/*.json"],
        "voxload.plan.platform": ["machines/*.toml"],
        "voxload.prefetch.machines": ["*.toml"],
    }
    assert project["tool"]["setuptools"]["package-data"] == data
    assert (ROOT / "voxload" / "py.typed").is_file()
    assert list((ROOT / "voxload" / "prefetch" / "machines").glob("*.toml"))
    assert list((ROOT / "voxload" / "plan" / "platform").glob("machines/*.toml"))
    assert list((ROOT / "voxload" / "benchmark" / "dlio").glob("workload/*.yaml"))
    assert list((ROOT / "voxload" / "cli" / "descriptions").glob("*.json"))


def _names(requirements: Iterable[str]) -> set[str]:
    """Return what is required, as package registries spell it, without this package."""
    return {str(canonicalize_name(Requirement(text).name)) for text in requirements} - {"voxload"}


def test_what_is_required_is_pinned_within_its_bounds(project: dict[str, Any]) -> None:
    """constraints.txt has a version of each, which pyproject.toml allows."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert len(pinned) == len(lines)
    extras = project["project"]["optional-dependencies"]
    for text in [*project["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]:
        wanted = Requirement(text)
        if wanted.name != "voxload":
            assert pinned[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_matplotlib_is_of_extras_alone(project: dict[str, Any]) -> None:
    """Of `plots`, and by that of what draws: the demo, and the benchmark's report."""
    extras = project["project"]["optional-dependencies"]
    assert "matplotlib" not in _names(project["project"]["dependencies"])
    assert {name for name, texts in extras.items() if "matplotlib" in _names(texts)} == {"plots"}
    assert all("voxload[plots]" in extras[name] for name in ("demo", "bench"))


def test_readme_says_what_each_extra_is_for(project: dict[str, Any]) -> None:
    """All of them, and no others."""
    table = re.search(r"\| extra \| for \|\n(.*?)\n\n", (ROOT / "README.md").read_text(), re.DOTALL)
    assert table is not None
    named = [name for line in table[1].splitlines() for name in re.findall(r"`([a-z]+)`", line.split("|")[1])]
    assert sorted(named) == sorted(project["project"]["optional-dependencies"])


def test_classifiers_name_each_python(project: dict[str, Any]) -> None:
    """From the oldest that is required on."""
    named = [text.rpartition(" ")[2] for text in project["project"]["classifiers"] if "Python :: 3." in text]
    assert named == ["3.11", "3.12", "3.13"]
    assert project["project"]["requires-python"] == f">={named[0]}"


def test_the_citation_is_of_this_version(project: dict[str, Any]) -> None:
    """It has what the Citation File Format requires, and says what pyproject.toml says."""
    found = import_module("yaml").safe_load((ROOT / "CITATION.cff").read_text())
    assert found["cff-version"] == "1.2.0"
    assert found["type"] == "software"
    assert found["message"]
    metadata = project["project"]
    assert (found["title"], found["version"], found["license"]) == tuple(
        metadata[key] for key in ("name", "version", "license")
    )
    assert (found["abstract"], found["keywords"]) == (metadata["description"], metadata["keywords"])
    assert found["authors"] == metadata["authors"]
