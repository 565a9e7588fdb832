"""``python -m voxload.cli.describe``: writes the descriptions of all commands anew, after options were changed."""

from __future__ import annotations

import enum
import inspect
import types
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from voxload.cli.commands import Command, every_command
from voxload.cli.description import FOLDER, TYPES, Description, Parameter, path_of
from voxload.errors import InternalError

_APART = {"default", "param_decls"}
"""What an option is given by its place, not by its name."""


def describe(command: Command) -> Description:
    """Load a command and return its description; raises InternalError of what no description can hold."""
    module = command.load()
    function = getattr(module, command.function)
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    found = tuple(_described(one, hints[one.name], command.module) for one in parameters)
    return Description(inspect.getdoc(function) or "", module.EPILOG, found)


def _described(parameter: inspect.Parameter, hint: Any, module: str) -> Parameter:
    subject = f"{module}, parameter {parameter.name}"
    if get_origin(hint) is not Annotated:
        raise InternalError(subject, found="no Annotated", expected="one with typer.Option or typer.Argument")
    wanted, info = get_args(hint)
    single, is_list, is_optional = _taken_apart(wanted)
    is_choice = isinstance(single, type) and issubclass(single, enum.Enum)
    if not is_choice and single not in TYPES.values():
        raise InternalError(subject, found=f"{single}", expected=f"an enumeration or one of {', '.join(TYPES)}")
    names = () if info.default is ... else (info.default,)
    return Parameter(
        name=parameter.name,
        type=single.__name__,
        choices={one.name: one.value for one in single} if is_choice else {},
        is_argument=isinstance(info, ArgumentInfo),
        is_list=is_list,
        is_optional=is_optional,
        default=[] if parameter.default is parameter.empty else [_plain(parameter.default, subject)],
        names=(*names, *(info.param_decls or ())),
        settings=_settings(info, subject),
    )


def _taken_apart(wanted: Any) -> tuple[Any, bool, bool]:
    """Return the type of one value, whether there may be several, and whether None."""
    is_optional = get_origin(wanted) is types.UnionType
    if is_optional:
        (wanted,) = (one for one in get_args(wanted) if one is not types.NoneType)
    is_list = get_origin(wanted) is list
    return (get_args(wanted)[0] if is_list else wanted), is_list, is_optional


def _settings(info: ArgumentInfo | OptionInfo, subject: str) -> dict[str, Any]:
    """Return what was said of an option and is not as usual."""
    usual = vars(typer.Argument() if isinstance(info, ArgumentInfo) else typer.Option())
    said = {name: value for name, value in vars(info).items() if name not in _APART and value != usual[name]}
    return {name: _plain(value, subject) for name, value in said.items()}


def _plain(value: Any, subject: str) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InternalError(subject, found=f"{value!r}", expected="a value that a description can hold")


def main() -> None:
    """Write every description, and remove those of commands that are no more."""
    FOLDER.mkdir(exist_ok=True)
    wanted = {path_of(command.module): describe(command).written() for command in every_command()}
    for path in set(FOLDER.glob("*.json")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
