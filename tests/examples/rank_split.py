"""One rank of an example of a split network, as torchrun would run it.

torchrun -m tests.examples.rank_split SCRIPT
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
import warnings

from bench.networking.video import videos


def main(script: str) -> None:
    """Run it; warnings of libraries, and ours of what is made whole, are no news here."""
    warnings.simplefilter("ignore")
    if importlib.util.find_spec("torchvision"):
        videos()  # which makes one importable that was built for another torch: libraries import it if it is there
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
