"""Recipes of packages and images in deploy/: what they install is what pyproject.toml says, whatever that says next."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
CONDA = ROOT / "deploy" / "conda"
CONTAINERS = ROOT / "deploy" / "containers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
"""What conda-forge calls otherwise."""


def _as_conda_has_it(requirements: Iterable[str]) -> set[str]:
    """Return requirements in conda's words."""
    found = map(Requirement, requirements)
    return {f"{NAMES.get(one.name, one.name)} {one.specifier}".rstrip() for one in found}


@pytest.fixture(scope="module")
def rendered() -> list[Any]:
    """Return the recipe as rattler-build itself understands it, for each Python."""
    rattler = import_module("rattler_build")
    variants = rattler.VariantConfig.from_file(CONDA / "variants.yaml")
    platform = rattler.PlatformConfig(target_platform="linux-64")
    recipe = rattler.Stage0Recipe.from_file(CONDA / "recipe.yaml")
    return list(recipe.render(variants, rattler.RenderConfig(platform)))


def test_the_conda_package_is_made_for_each_python(rendered: list[Any]) -> None:
    """Those of the classifiers."""
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert sorted(one.variant["python"] for one in rendered) == [f"{version}.*" for version in named]


def test_the_conda_package_requires_what_is_required(rendered: list[Any]) -> None:
    """The same names and bounds; pictures' in constraints; and the version, licence and program are the same."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for one in rendered:
        found = one.recipe.to_dict()
        requirements = found["requirements"]
        assert set(requirements["run"]) - {"python"} == _as_conda_has_it(PROJECT["dependencies"])
        assert set(requirements["run_constraints"]) == _as_conda_has_it(PROJECT["optional-dependencies"]["plots"])
        assert set(requirements["host"]) - {"python", "pip"} == _as_conda_has_it(system)
        assert "gcc_linux-64" in requirements["build"]
        assert found["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
        assert found["about"]["license"] == PROJECT["license"]
        assert found["about"]["summary"] == PROJECT["description"]
        programs = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
        assert found["build"]["python"]["entry_points"] == programs


def test_the_conda_package_is_built_from_these_sources() -> None:
    """The recipe's path leads to the root of the tree."""
    source = import_module("yaml").safe_load((CONDA / "recipe.yaml").read_text())["source"]
    assert (CONDA / source["path"]).resolve() == ROOT


@pytest.mark.parametrize("name", ["Containerfile", "voxload.def"])
def test_images_install_extras_that_there_are(name: str) -> None:
    """What a node's service needs, with the versions that are pinned, on a Python that is supported."""
    text = (CONTAINERS / name).read_text()
    (extras,) = re.findall(r'--constraint /source/constraints\.txt "/source\[(.*?)\]"', text)
    assert set(extras.split(",")) == {"serve", "remote"}
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    bases = set(re.findall(r"python:([0-9.]+)-slim", text))
    assert len(bases) == 1
    assert bases.pop() in SpecifierSet(PROJECT["requires-python"])


def test_the_image_is_named_after_the_version() -> None:
    """In the command that builds it."""
    assert f"voxload:{PROJECT['version']} " in (CONTAINERS / "Containerfile").read_text()
