"""Claim: the drop-in loader keeps the cores decoding, in less memory, from the first batch on and across epochs.

Every contender loads the same blocks of the same samples for some epochs on the same cores, each run in a process of
its own, in turns. Peers are set up as those who know them best would: files stay open, chunk caches fit, buffers are
reused, workers persist. First a run is timed flat out, then with a consumer that computes for some time in each step.
The memory is that of all processes, shared pages counted once, and looked at every few milliseconds in a run beside the
one that is timed. Batches are compared: every contender must have given the same voxels. The exit status is 1 when
something that was asked for was not reached, or a contender gave other voxels.

    python bench/loader.py --quick
    python bench/loader.py --folder DATA --json loader.json --plot loader.png
    python bench/loader.py --cases hdf5-gzip --contenders voxload,h5py-workers --rounds 5
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.loading.command").main())
