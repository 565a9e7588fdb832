"""Claim: what voxload measures of a run is what the DLIO benchmark reports of it.

DLIO runs two workloads, like MLPerf Storage's unet3d and cosmoflow and scaled down, with voxload's plug-in as its data
loader and with its own, in one process and in two. Printed is the accelerator utilisation that DLIO reports, and the
one that follows from the steps that the plug-in timed. The exit status is 1 when they differ by more than 2 points.
Compare loaders on a machine that has nothing else to do.

    python bench/dlio.py --python DLIO-ENVIRONMENT/bin/python
    python bench/dlio.py --python DLIO-ENVIRONMENT/bin/python --workloads cosmoflow --ranks 1 --folder DATA
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.underdlio.command").main())
