"""``voxload``: the program, its commands and its exit status.

Exit status 0: done; 1: the work failed; 2: the call was wrong. An error is one line on standard error, unless
``--traceback`` stands anywhere in the call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from voxload.cli.bench import app as bench
from voxload.cli.catalog import app as catalog
from voxload.cli.convert import EPILOG as CONVERT_EPILOG
from voxload.cli.convert import convert
from voxload.cli.demo import EPILOG as DEMO_EPILOG
from voxload.cli.demo import demo
from voxload.cli.infer import EPILOG as INFER_EPILOG
from voxload.cli.infer import infer
from voxload.cli.info import EPILOG as INFO_EPILOG
from voxload.cli.info import info
from voxload.cli.retries import show_retries
from voxload.cli.simulate import EPILOG as SIMULATE_EPILOG
from voxload.cli.simulate import simulate
from voxload.cli.start import INTERRUPTED
from voxload.cli.train import EPILOG as TRAIN_EPILOG
from voxload.cli.train import train
from voxload.cli.verify import EPILOG as VERIFY_EPILOG
from voxload.cli.verify import verify
from voxload.errors import UsageError, VoxloadError

_TRACEBACK = "--traceback"

app = typer.Typer(name="voxload", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command(epilog=CONVERT_EPILOG)(convert)
app.command(epilog=INFO_EPILOG)(info)
app.command(epilog=VERIFY_EPILOG)(verify)
app.command(epilog=SIMULATE_EPILOG)(simulate)
app.command(epilog=TRAIN_EPILOG)(train)
app.command(epilog=INFER_EPILOG)(infer)
app.command(epilog=DEMO_EPILOG)(demo)
app.add_typer(bench)
app.add_typer(catalog)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"voxload {version('voxload')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option(_TRACEBACK, help="Show where an error comes from; may stand anywhere in the call.")
    ] = False,
) -> None:
    """Load, convert and train on 3-D samples that are too large for one GPU."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    show_retries()
    given = [argument for argument in arguments if argument != _TRACEBACK]
    try:
        status = app(args=given, standalone_mode=False)
    except typer.TyperException as error:
        return _fail(error.format_message() or "missing command; see voxload --help", error.exit_code)
    except VoxloadError as error:
        if _TRACEBACK in arguments:
            raise
        return _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    # typer itself turns Ctrl-C inside a command into this status, without a word.
    return _fail("interrupted", INTERRUPTED) if status == INTERRUPTED else int(status or 0)


def _fail(message: str, status: int) -> int:
    print(f"voxload: {' '.join(message.split())}", file=sys.stderr)
    return status
