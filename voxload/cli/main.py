"""``voxload``: the program, its exit status, and its errors, warnings and retries of one line each.

Exit status 0: done; 1: the work failed; 2: the call was wrong. An error is one line on standard error, unless
``--traceback`` stands anywhere in the call.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from voxload.cli import INTERRUPTED
from voxload.cli.commands import COMMANDS, GROUPS, Form, add_commands
from voxload.cli.completion import words_before
from voxload.cli.description import DescribedOnlyError
from voxload.errors import UsageError, VoxloadError
from voxload.text import shown

TRACEBACK = "--traceback"
"""Option that shows where errors and warnings come from."""
_HELP = "--help"
NAME = "voxload"
"""The program, however it was started: ``python -m voxload`` is the same."""


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415 - no other call needs it

        print(f"voxload {version('voxload')}")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option(TRACEBACK, help="Show where an error comes from; may stand anywhere in the call.")
    ] = False,
) -> None:
    """Load, convert and train on 3-D samples that are too large for one GPU."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; in a shell's request for completion, print that and leave."""
    show_retries()
    given = [argument for argument in arguments if argument != TRACEBACK]
    try:
        status = _called(given)
    except typer.TyperException as error:
        return _fail(error.format_message() or "missing command; see voxload --help", error.exit_code)
    except VoxloadError as error:
        if TRACEBACK in arguments:
            raise
        return _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    # typer itself turns Ctrl-C inside a command into this status, without a word.
    return _fail("interrupted", INTERRUPTED) if status == INTERRUPTED else int(status or 0)


def _called(arguments: list[str]) -> Any:
    """Call the program with as little of it as it takes, and return what typer does."""
    words = words_before(os.environ)
    if words is None and _HELP in arguments:
        words = arguments[: arguments.index(_HELP)]
    if words is not None:
        try:
            return _program(words, Form.DESCRIBED)(arguments)
        except DescribedOnlyError:
            pass  # the word was the value of another option
    return _program(arguments, Form.LOADED)(arguments)


def _program(arguments: Sequence[str], form: Form) -> Callable[[Sequence[str]], Any]:
    """Return the program, with the command that these arguments call in a form.

    Options of its own, --help among them, are there unless a command is described: for those with no default typer
    would load what checks values, which takes as long as all the rest.
    """
    is_own = form is Form.LOADED or not any(word in (*COMMANDS, *GROUPS) for word in arguments)
    app = typer.Typer(
        name=NAME,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=is_own or words_before(os.environ) is not None,
        add_help_option=is_own,
    )
    app.callback()(_root)
    add_commands(app, arguments, form=form)
    return partial(app, prog_name=NAME, standalone_mode=False)


def _fail(message: str, status: int) -> int:
    print(f"voxload: {shown(' '.join(message.split()))}", file=sys.stderr)
    return status


def show_warnings(arguments: Sequence[str]) -> None:
    """Print warnings of this process so from now on, unless the arguments ask for tracebacks."""
    if TRACEBACK not in arguments:
        warnings.formatwarning = _in_one_line


def _in_one_line(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 - the signature of warnings.formatwarning
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> str:
    return f"voxload: warning: {shown(' '.join(str(message).split()))}\n"


_REPR = re.compile(r"""^\w+\((["'])(.*)\1\)$""")
"""An error as stamina hands it on: its class and message as Python writes them."""
_LONGEST = 100
"""Characters of a cause: one line on most terminals; the error at the end has it whole."""


class _RetryLines(logging.Handler):
    """Prints a line on standard error for each request that is sent again.

    stamina logs retries with their facts as attributes of the record, which no default format shows.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record of stamina's."""
        facts = vars(record)
        cause = _REPR.sub(r"\2", " ".join(str(facts.get("stamina.caused_by", "no answer")).split()))
        number, wait = facts.get("stamina.retry_num", "?"), facts.get("stamina.wait_for", "?")
        print(f"voxload: attempt {number} failed, next in {wait} s: {shown(cause[:_LONGEST])}", file=sys.stderr)


def show_retries() -> None:
    """Let retries be seen from now on; a second call changes nothing."""
    logger = logging.getLogger("stamina")
    if not any(isinstance(handler, _RetryLines) for handler in logger.handlers):
        logger.addHandler(_RetryLines())
        logger.propagate = False
