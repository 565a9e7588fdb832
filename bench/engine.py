"""Claim: a network costs nothing on one block, and on blocks of P ranks it takes about a P-th of time and memory.

CosmoFlow runs with batch 1 in processes of one thread each, in turns; every figure is a ratio of the same round. Asked
for are at most 1.03 times plain torch's time through the engine on one rank (1.02 on a GPU), at least 1.7 times the
speed of one process on two ranks, and at most 1.1 times a P-th of one process's activations and the halos. Beside them
are printed what of a two-rank step goes where, what the messages of each exchange and each way of joining halos cost
beyond a step without any, and a profile. Results are compared: what is timed must have predicted the same, and received
what was planned. The exit status is 1 when something that was asked for was not reached, 2 when it cannot be measured
here. Where others use the machine too, --patience waits for them, and repeats rounds that they disturbed.

    python bench/engine.py
    python bench/engine.py --only two-ranks --joins auto --patience 600
    python bench/engine.py --only memory,hidden --ranks 2,4,8 --json engine.json
    python bench/engine.py --device cuda --size 256
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.engining.command").main())
