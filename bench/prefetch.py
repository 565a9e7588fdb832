"""Claim: on storage that is the bottleneck, each stored byte is read once, and no rank waits for what could be there.

Four ranks, two sample groups of two blocks, train for five epochs on samples behind a server on the loopback interface
that is a process of its own: it gives all ranks together one bandwidth, lets each request wait, and logs what it sends.
torch's DataLoader, voxload without a cache, with node-local LRU, and with clairvoyant prefetching read the same samples
in the same order, in turn; every contender is four processes of its own. Beside each time stand the lower bound and
what the simulator predicts for this server. The exit status is 1 when something that was asked for was not reached.

    python bench/prefetch.py --quick
    python bench/prefetch.py --folder DATA --json prefetch.json --plot prefetch.png
    python bench/prefetch.py --contenders clairvoyant,nopfs,first-touch,shards,lru/half,clairvoyant/half
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.prefetching.command").main())
