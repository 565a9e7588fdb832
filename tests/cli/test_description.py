"""Descriptions: help is shown from a file, and says what the command itself would say."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from tests.support.commands import CALLS
from voxload.cli.commands import Form, every_command
from voxload.cli.describe import describe, main
from voxload.cli.description import FOLDER, Description, path_of
from voxload.cli.main import _program, run
from voxload.errors import InternalError


def test_every_command_has_its_description_and_no_other_is_there() -> None:
    """What a command says of itself is in its file, to the byte: options change together with their description."""
    texts = {path_of(command.module): describe(command).written() for command in every_command()}
    assert set(FOLDER.iterdir()) == set(texts)
    for path, text in texts.items():
        assert path.read_text(encoding="utf-8") == text, "run python -m voxload.cli.describe"


@pytest.mark.parametrize("call", CALLS)
def test_help_is_that_of_the_loaded_command(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names, types, choices, defaults and texts of all options, and what stands under them."""
    arguments = [*call.split(), "--help"]
    assert run(arguments) == 0
    described = capsys.readouterr().out
    _program(arguments, Form.LOADED)(arguments)
    assert described == capsys.readouterr().out
    assert "Example: " in described


class _Colour(enum.Enum):
    RED = "red"


def _everything(
    path: Annotated[str, typer.Argument(help="A path.", show_default=False)],
    *,
    colour: Annotated[_Colour, typer.Option("--paint", "-p", help="A colour.")] = _Colour.RED,
    many: Annotated[list[float] | None, typer.Option(min=0.5, hidden=True)] = None,
) -> None:
    """Do.

    More of it.
    """


def _described(function: Any, monkeypatch: pytest.MonkeyPatch) -> Description:
    """Describe a function as if it were a command."""
    command = next(iter(every_command()))
    module = type("module", (), {"EPILOG": "Example: do", command.function: staticmethod(function)})
    monkeypatch.setattr(type(command), "load", lambda _self: module)
    return describe(command)


def test_what_is_written_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A description goes through its file as it is, and makes the same options of each kind of parameter."""
    found = _described(_everything, monkeypatch)
    monkeypatch.setattr("voxload.cli.description.FOLDER", tmp_path)
    (tmp_path / "do.json").write_text(found.written())
    again = Description.read("voxload.cli.do")
    assert again == found
    path, colour, many = (one.parameter for one in again.parameters)
    assert path.default is path.empty
    assert colour.default.value == "red"
    assert many.default is None
    assert [one.settings for one in again.parameters][2] == {"min": 0.5, "hidden": True}
    assert again.parameters[1].names == ("--paint", "-p")


def test_what_no_description_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option with a function of its own, or of a type that is unknown, is an error when it is written."""

    def calls(*, one: Annotated[bool, typer.Option(callback=print)] = False) -> None:
        """Do."""

    def pairs(*, one: Annotated[tuple[int, int], typer.Option()] = (1, 2)) -> None:
        """Do."""

    def bare(one: int) -> None:
        """Do."""

    for function, words in ((calls, "can hold"), (pairs, "an enumeration or one of"), (bare, "no Annotated")):
        with pytest.raises(InternalError, match=words):
            _described(function, monkeypatch)


def test_a_command_without_a_description_says_how_to_write_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody sees an empty help."""
    monkeypatch.setattr("voxload.cli.description.FOLDER", tmp_path)
    with pytest.raises(InternalError, match=r"python -m voxload\.cli\.describe"):
        Description.read("voxload.cli.convert")


def test_descriptions_of_commands_that_are_no_more_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All are written anew, into a folder that need not be there."""
    folder = tmp_path / "made"
    for module in ("describe", "description"):
        monkeypatch.setattr(f"voxload.cli.{module}.FOLDER", folder)
    main()
    (folder / "gone.json").write_text("{}")
    main()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        path.name: path.read_text() for path in FOLDER.iterdir()
    }


def test_help_may_be_the_value_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """Then the command itself is called: here it finds that there is no such file."""
    assert run(["info", "none.h5", "--dataset", "--help"]) == 2
    assert "none.h5: found no such file" in capsys.readouterr().err
