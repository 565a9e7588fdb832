"""packaging: what pyproject.toml promises is what the tree holds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

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
