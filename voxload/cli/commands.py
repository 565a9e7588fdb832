"""Commands: those of the program, each loaded when it is called.

Loading all of them takes seconds and half a gigabyte, most of it for torch and for what draws: too long for a
conversion of many tasks, each of which would fetch these libraries from the file system that it is to read from, and
too long for a list of commands. What that list says of each stands here. A command's own help and completion come
from its description.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import typer

from voxload.cli.description import Description
from voxload.errors import InternalError


class Form(enum.Enum):
    """What a program knows of a command."""

    LISTED = "listed"
    """Its name and summary."""
    DESCRIBED = "described"
    """Its options too, which are enough for help and completion."""
    LOADED = "loaded"
    """All of it: it can be called."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its module holds the function that it is, and the example under its help."""

    module: str
    function: str
    summary: str
    """The first paragraph of the function's docstring."""

    def load(self) -> ModuleType:
        """Import the module."""
        return import_module(self.module)

    def add(self, app: typer.Typer, name: str, *, form: Form) -> None:
        """Add the command to a program; only one that is loaded can be called."""
        if form is Form.LISTED:
            app.command(name, help=self.summary)(_not_loaded)
        else:
            function, epilog = self.taken(form)
            app.command(name, epilog=epilog)(function)

    def taken(self, form: Form) -> tuple[Callable[..., None], str]:
        """Return its function, or one with the same signature, and what stands under its help."""
        if form is Form.DESCRIBED:
            found = Description.read(self.module)
            return found.function(), found.epilog
        module = self.load()
        return getattr(module, self.function), module.EPILOG


@dataclass(frozen=True, slots=True)
class Group:
    """A command that has commands."""

    summary: str
    commands: Mapping[str, Command]
    own: Command | None = None
    """What it does itself, where none of its commands is named."""
    word: str = ""
    """What the first word is that it takes itself, where it takes any: a word that names no command is one."""

    def add(self, app: typer.Typer, name: str, *, called: str | None, form: Form) -> None:
        """Add the group to a program, with its command of the name `called` in a form; the others are listed.

        Nothing is called where the group is not; where none of its commands is, the group itself may be. It has no
        --help where one of its commands is described: typer would load what checks values, for an option not given.
        """
        own = self.own if called is not None and called not in self.commands else None
        if self.word and own is not None and called:
            own.add(app, name, form=form)
            return
        if self.word:
            own = None
        more = f"\n\nvoxload {name} {self.word} --help tells of {self.word}." if self.word else ""
        has_help = form is Form.LOADED or called not in self.commands
        group = typer.Typer(name=name, no_args_is_help=True, help=self.summary + more, add_help_option=has_help)
        if own is not None:
            function, epilog = own.taken(form)
            group.callback(invoke_without_command=True, epilog=epilog)(function)
        for each, command in self.commands.items():
            command.add(group, each, form=form if each == called else Form.LISTED)
        app.add_typer(group)


COMMANDS: Mapping[str, Command] = {
    "convert": Command(
        "voxload.cli.convert", "convert", "Convert raw cubes into Zarr or HDF5 samples and a catalogue."
    ),
    "info": Command(
        "voxload.cli.inspect.info", "info", "Say what a file is, how it is stored, and what reading it costs."
    ),
    "verify": Command(
        "voxload.cli.inspect.verify", "verify", "Read every stored chunk of every sample and list what is damaged."
    ),
    "simulate": Command(
        "voxload.cli.simulate",
        "simulate",
        "Predict time, stall and bytes of each policy on a machine, and the bound that none beats.",
    ),
    "train": Command(
        "voxload.cli.network.train", "train", "Train a network on blocks of samples that several processes share."
    ),
    "infer": Command("voxload.cli.network.infer", "infer", "Predict from whole samples that several processes share."),
    "demo": Command(
        "voxload.cli.network.demo",
        "demo",
        "Make universes, convert them, train CosmoFlow on 4 processes as 2 groups x 2 blocks, and report.",
    ),
}
"""Commands without commands, in the order of the help."""

GROUPS: Mapping[str, Group] = {
    "bench": Group(
        "Measure how fast a storage feeds a network.",
        {
            "generate": Command(
                "voxload.cli.bench.generate",
                "generate",
                "Write samples whose every voxel can be verified, with a catalogue.",
            ),
            "run": Command(
                "voxload.cli.bench.run",
                "run",
                "Load batches as training would, with computing in make-believe, and say what the storage gave.",
            ),
            "sweep": Command(
                "voxload.cli.bench.sweep", "sweep", "Measure every combination in turns; say which to use, and why."
            ),
            "compare": Command(
                "voxload.cli.bench.compare",
                "compare",
                "Say of each figure whether B is better or worse than A, or within noise, and what else differs.",
            ),
            "report": Command(
                "voxload.cli.bench.report",
                "report",
                "Say which loader is the fastest, and draw throughput, latencies, stalls, tiers, bytes and epochs.",
            ),
        },
    ),
    "plan": Group(
        "Say how to split training over ranks, whether it fits, and what a step takes.",
        {
            "calibrate": Command(
                "voxload.cli.planning.calibrate",
                "calibrate_machine",
                "Measure operations, messages and sums of this machine, and write a file that plans are made with.",
            ),
            "validate": Command(
                "voxload.cli.planning.validate",
                "validate_plans",
                "Train steps on this machine, and print their time and memory beside what was said of them.",
            ),
            "diff": Command(
                "voxload.cli.planning.diff",
                "diff",
                "Say what differs between two plans, and what they were said to take.",
            ),
        },
        Command(
            "voxload.cli.planning.run",
            "plan",
            "Say how to split training over ranks, whether it fits, and what a step takes.",
        ),
        word="MODEL",
    ),
    "serve": Group(
        "Keep blocks in this node's memory for all jobs of this user: each is read once, whoever wants it.",
        {
            "status": Command(
                "voxload.cli.service.status",
                "status",
                "Say what the service of this node keeps, what it read, and who is connected.",
            ),
            "top": Command(
                "voxload.cli.service.top",
                "top",
                "Show what the service of this node keeps, reads and is asked for, until interrupted.",
            ),
            "warm": Command(
                "voxload.cli.service.warm",
                "warm",
                "Have the service read what jobs will use, before they begin; it stays near for a while.",
            ),
            "pin": Command(
                "voxload.cli.service.pin",
                "pin",
                "Have the service read blocks and keep them, until they are let go by voxload serve free NAME.",
            ),
            "free": Command(
                "voxload.cli.service.free",
                "free",
                "Let go what was warmed or pinned by a name, or forget all that nobody will use.",
            ),
            "quota": Command(
                "voxload.cli.service.quota",
                "quota",
                "Let a service use less of its memory, or all of it again; what has to go for that goes at once.",
            ),
            "drain": Command(
                "voxload.cli.service.drain",
                "drain",
                "Let a service end: no job is let in any more, and what is in memory is written to its disk first.",
            ),
        },
        Command(
            "voxload.cli.service.run",
            "serve",
            "Keep blocks in this node's memory for all jobs of this user: each is read once, whoever wants it.",
        ),
    ),
    "catalog": Group(
        "List, merge, append to, split and filter catalogues.",
        {
            "list": Command(
                "voxload.cli.catalog.list",
                "list_catalog",
                "List samples with totals; these and the figures are of all rows for which --where holds, "
                "shown or not.",
            ),
            "merge": Command(
                "voxload.cli.catalog.merge",
                "merge_catalogs",
                "Write the rows of several catalogues into one; paths are rewritten, nothing else is copied.",
            ),
            "append": Command(
                "voxload.cli.catalog.append",
                "append_catalogs",
                "Add rows to a catalogue, which readers see whole, as it was before or as it is then; "
                "nothing else is copied.",
            ),
            "shards": Command(
                "voxload.cli.catalog.shards",
                "catalog_shards",
                "Write a catalogue of pictures, clips and arrays in tar archives; nothing is unpacked.",
            ),
            "split": Command(
                "voxload.cli.catalog.split",
                "split_catalog",
                "Write train.parquet, val.parquet and test.parquet: 0.8, 0.1 and 0.1 of the samples unless "
                "told otherwise.",
            ),
            "filter": Command(
                "voxload.cli.catalog.filter",
                "filter_catalog",
                "Write the rows for which a condition on their columns holds, or of samples on a list; "
                "with both, of both.",
            ),
        },
    ),
}
"""Commands that have commands, behind the others in the help."""


def every_command() -> Iterator[Command]:
    """Yield all commands, those of groups and what groups do themselves included."""
    yield from COMMANDS.values()
    for group in GROUPS.values():
        yield from group.commands.values()
        if group.own is not None:
            yield group.own


def add_commands(app: typer.Typer, arguments: Sequence[str], *, form: Form) -> None:
    """Add all commands to a program: the one that these arguments call in a form, the others in a list.

    The program's own options take no values: the first two words that are no options name the command.
    """
    called, inner = [*(word for word in arguments if not word.startswith("-")), "", ""][:2]
    for name, command in COMMANDS.items():
        command.add(app, name, form=form if name == called else Form.LISTED)
    for name, group in GROUPS.items():
        group.add(app, name, called=inner if name == called else None, form=form)


def _not_loaded() -> None:
    raise InternalError("voxload", found="a command that was not loaded", remedy="please report how it was called")
