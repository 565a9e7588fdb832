"""Doors: a contract for import-linter. What a room offers to others is listed; the rest of it is its own."""

from __future__ import annotations

from typing import Any, cast

from grimp import ImportGraph
from importlinter.application import output
from importlinter.domain import fields
from importlinter.domain.contract import Contract, ContractCheck


class DoorsContract(Contract):
    """Modules of one room are imported by other rooms through its doors only.

    A room is a package below `root`. A room that is not named offers nothing but itself; a door that nobody outside
    imports is an error as well, so that the list says what is.
    """

    type_name = "doors"

    root = fields.StringField()
    doors = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002 - theirs
        """Compare all imports between rooms with the list."""
        root, doors = cast("str", self.root), cast("set[str]", self.doors)
        rooms = {child for child in graph.find_children(root) if graph.find_children(child)}
        used, broken = set(), []
        for room in rooms:
            for module in (room, *graph.find_descendants(room)):
                outside = [one for one in graph.find_modules_that_directly_import(module) if not _is_in(one, room)]
                if module == room or module.removeprefix(f"{root}.") in doors:
                    used |= {module.removeprefix(f"{root}.")} if outside else set()
                else:
                    broken += [f"{one} -> {module}" for one in sorted(outside)]
        unused = sorted(doors - used)
        return ContractCheck(kept=not broken and not unused, metadata={"broken": sorted(broken), "unused": unused})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print what is wrong, one import a line."""
        metadata: dict[str, Any] = check.metadata
        for line in metadata["broken"]:
            output.print_error(f"{line} is no door: move what is shared to one, or list it in .importlinter")
        for line in metadata["unused"]:
            output.print_error(f"{line} is a door that no other room imports: take it from the list")


def _is_in(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")
