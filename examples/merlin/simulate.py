"""Simulate one universe: ``python simulate.py INDEX OUT [--size 32]``. Its parameters follow from its index."""

from __future__ import annotations

import argparse
from pathlib import Path

from voxload.demo.universes import UniverseSpec, write_universe

SEED = 7
"""Of the ensemble: the same index is the same universe in every study."""


def main() -> None:
    """Write the universe; it appears whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=32, help="cells along each axis")
    words = parser.parse_args()
    write_universe(words.out, UniverseSpec(seed=SEED, index=words.index, size=words.size))


if __name__ == "__main__":
    main()
