"""Start of the program: a command takes a second or more to load, in which it may be interrupted too."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the signal's number, as shells have it."""


def main() -> None:
    """Run the program on the command line's arguments."""
    try:
        from voxload.cli.main import run  # noqa: PLC0415 - this import is what may be interrupted
        from voxload.cli.warned import show_warnings  # noqa: PLC0415 - as above
    except KeyboardInterrupt:
        print("voxload: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    show_warnings(sys.argv[1:])
    sys.exit(run(sys.argv[1:]))
