"""Claim: no damage crashes a reader, hangs it or makes it allocate without bound, and none under a checksum is silent.

Damages whole tiny files of every format - cuts, flipped bits, blocks zeroed, repeated, removed and copied over others,
numbers that overflow - and reads each in a process that is watched. Prints how often each outcome came, and ends with
status 1 when one of them is a failure. Input I of seed S is the same in every run: --only I reads it again.

    python bench/fuzz_readers.py [--count 20000] [--seed 0] [--jobs 2] [--keep FOLDER] [--json]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.fuzzing.command").main())
