"""Claim: no damaged source crashes a conversion, hangs it or takes memory without bound, and none is stored silently.

Damages tiny sources of every format, as `fuzz_readers` does, and converts each in a process that is watched; what is
stored then is read and compared. Damage that a checksum of the format covers must be an error. Prints how often each
outcome came, and ends with status 1 when one of them is a failure.

    python bench/fuzz_convert.py [--count 20000] [--seed 0] [--jobs 2] [--keep FOLDER] [--json]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.fuzzing.command").main("convert"))
