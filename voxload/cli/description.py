"""Description: what help and completion show of a command, from a file, so that its module stays unloaded.

A command's module brings what its work needs: for training that is seconds of imports. Its description is the
signature of its function, which `voxload.cli.describe` writes and a test compares with the function.
"""

from __future__ import annotations

import enum
import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Never

import typer

from voxload.errors import InternalError

FOLDER = Path(__file__).with_name("descriptions")
"""Where descriptions are, one file a command."""
TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str, "Path": Path}
"""Types of parameters by their names; besides them there are enumerations."""


class DescribedOnlyError(Exception):
    """A command was called of which only the description is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument or option of a command, in plain values."""

    name: str
    """Name of the function's parameter."""
    type: str
    """Name of its type: one of TYPES, or an enumeration's."""
    choices: dict[str, str] = field(default_factory=dict)
    """Members of that enumeration and their values; empty where it is none."""
    is_argument: bool = False
    """Whether it is an argument, not an option."""
    is_list: bool = False
    """Whether it may be given several times."""
    is_optional: bool = False
    """Whether it may be None."""
    default: list[Any] = field(default_factory=list)
    """The default as JSON has it, alone in a list; an empty list where the caller has to give a value."""
    names: tuple[str, ...] = ()
    """Names on the command line, where they do not follow from the parameter's."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What else `typer.Option` or `typer.Argument` is given."""

    @property
    def parameter(self) -> inspect.Parameter:
        """The parameter of a function that typer makes the same option of."""
        single: Any = enum.Enum(self.type, self.choices) if self.choices else TYPES[self.type]
        wanted: Any = list[single] if self.is_list else single
        made = (typer.Argument if self.is_argument else typer.Option)(*self._positional, **self.settings)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self._default(single),
            annotation=Annotated[wanted | None if self.is_optional else wanted, made],
        )

    @property
    def _positional(self) -> tuple[Any, ...]:
        return (..., *self.names) if self.is_argument else self.names

    def _default(self, single: Callable[[Any], Any]) -> Any:
        """Return the default as the function has it."""
        if not self.default:
            return inspect.Parameter.empty
        value = self.default[0]
        if value is None or self.is_list:
            return value
        return single(value)


@dataclass(frozen=True, slots=True)
class Description:
    """What help and completion show of a command."""

    text: str
    """The docstring of its function."""
    epilog: str
    """What stands under its help."""
    parameters: tuple[Parameter, ...]
    """Its arguments and options, in their order."""

    @classmethod
    def read(cls, module: str) -> Description:
        """Return the description of the command in a module; raises InternalError where it was never written."""
        path = path_of(module)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InternalError(
                module, found=f"no description {path.name}", remedy="write it with python -m voxload.cli.describe"
            ) from None
        parameters = (Parameter(**{**one, "names": tuple(one.get("names", ()))}) for one in found["parameters"])
        return cls(found["text"], found["epilog"], tuple(parameters))

    def written(self) -> str:
        """Return the text of its file, one parameter a line; what is as usual is left out."""
        usual = asdict(Parameter(name="", type=""))
        parameters = [
            {name: value for name, value in asdict(one).items() if value != usual[name]} for one in self.parameters
        ]
        lines = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in parameters)
        text, epilog = (json.dumps(each, ensure_ascii=False) for each in (self.text, self.epilog))
        return f'{{\n "text": {text},\n "epilog": {epilog},\n "parameters": [\n{lines}\n ]\n}}\n'

    def function(self) -> Callable[..., None]:
        """Return a function with the command's signature; it raises DescribedOnlyError when it is called."""

        def described(**_given: Any) -> Never:
            raise DescribedOnlyError

        parameters = [one.parameter for one in self.parameters]
        described.__doc__ = self.text
        described.__annotations__ = {one.name: one.annotation for one in parameters}
        described.__dict__["__signature__"] = inspect.Signature(parameters)
        return described


def path_of(module: str) -> Path:
    """Return where the description of the command in a module is."""
    return FOLDER / f"{module.removeprefix('voxload.cli.')}.json"
