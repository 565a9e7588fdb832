"""The tree of modules: what a newcomer can find their way in. `make lint` looks at which way imports point."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

from tests.support.house import FULL, ROOT, House


@pytest.fixture(scope="module")
def house() -> House:
    """Look at the package once."""
    return House.of("voxload")


def test_no_module_imports_itself_through_others(house: House) -> None:
    """Imports for type checkers count."""
    assert house.circle == ()


def test_rooms_are_small(house: House) -> None:
    """At the root of the package stands only what every room speaks."""
    assert house.full == {}, f"more than {FULL} modules"
    assert house.folders[ROOT / "voxload"] <= 6


def test_files_are_read_whole(house: House) -> None:
    """Neither a drawer of crumbs nor a file without an end."""
    assert median(house.lines.values()) >= 130
    assert {path for path, lines in house.lines.items() if lines > 400} == set()


def test_a_circle_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only type checkers go round, too."""
    folder = tmp_path / "roundabout"
    folder.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from roundabout.b import B\n",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from roundabout import a\nB = 1\n",
    }.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tests.support.house.ROOT", tmp_path)
    assert set(House.of("roundabout").circle) == {"roundabout.a", "roundabout.b"}


@pytest.mark.parametrize("room", ["voxload", "voxload.catalog", "voxload.convert"])
def test_names_that_come_late_are_there_and_no_modules(room: str) -> None:
    """A module of a name would take its place as soon as anybody imports it."""
    package = importlib.import_module(room)
    assert sorted(package.__all__) == dir(package)
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    for name in package.__all__:
        assert isinstance(getattr(package, name), ModuleType) == (name in modules)
    assert set(vars(package)["_HOMES"]).isdisjoint(modules)
    with pytest.raises(AttributeError, match=f"module '{room}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - the attribute is the test
