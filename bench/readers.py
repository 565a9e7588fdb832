"""Claim: reading a block costs what its bytes cost, and less than with any other reader.

Every contender reads the same boxes of the same file, one after the other in each round, into a buffer that is
reused; the table gives medians and how many times faster voxload is. Peers are set up as those who know them best
would: several settings are tried before the clock runs and the fastest is kept, by name. Every result is compared
with the array that was written before it is timed, and what the page cache holds is asked of the system.

    python bench/readers.py --quick
    python bench/readers.py --folder DATA --json readers.json --plot readers.png
    python bench/readers.py --formats hdf5-gzip --cases octant,halo --dtypes int16 --chunks 64
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.reading.command").main())
