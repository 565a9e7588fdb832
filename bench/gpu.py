"""Claim: what was written for GPUs does on one what it does on the host, and as fast as its bus and memory allow.

One command answers all that is open on GPUs: the tests marked ``gpu``, then the measurements, each part in a process of
its own with a limit of its own, so that one that fails or hangs loses only itself. It ends with a table of every claim:
what was asked, what was measured, and whether that holds. The figures go to OUTPUT/gpu.json, with a picture of copies
and computation for each network that trains, and a log for each part.

Nothing needs to be installed but what voxload needs: parts that lack something are skipped by name. The exit status is
1 when something failed or was not reached, 2 when there is no GPU, or no torch. Parts repeated with ``--only`` take the
place of their earlier figures in OUTPUT/gpu.json, where those are of the same machine.

    python -m bench.gpu
    python -m bench.gpu --only transfer,joins
    python -m bench.gpu --device cpu        # all parts through the same code, at small sizes: no figure means anything
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.proving.command").main())
