"""Start of the program: a command takes a second or more to load, in which it may be interrupted too."""

from __future__ import annotations

import os
import sys

from voxload.cli import INTERRUPTED

try:
    from voxload.cli.main import run, show_warnings
except KeyboardInterrupt:
    print("voxload: interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)


def main() -> None:
    """Run the program on the command line's arguments."""
    # Pictures are files. A notebook's kernel hands its own way of drawing down, which need not be installed here.
    os.environ["MPLBACKEND"] = "agg"
    show_warnings(sys.argv[1:])
    sys.exit(run(sys.argv[1:]))
