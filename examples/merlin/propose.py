"""Propose universes to simulate: ``python propose.py UNIVERSES COUNT OUT``, numbers of universes as a column of .npy.

Of many candidates those are taken, one after the other, whose parameters are farthest from all that are in the
catalogue or taken: a maximin design. What was simulated before, or could not be, is not proposed again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from voxload.catalog import Catalog, read_failures
from voxload.demo.universes import UniverseSpec, unit_parameters

SEED = 7
"""As in simulate.py."""
CANDIDATES = 8
"""For each that is taken."""


def main() -> None:
    """Write the numbers."""
    folder, count, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    known = set(read_failures(folder)) if folder.is_dir() else set()
    if (folder / "catalog.parquet").exists():
        known |= set(Catalog.read(folder).samples)
    indices = {int(name.rpartition("_")[2]) for name in known}
    first = max(indices, default=-1) + 1
    candidates = np.arange(first, first + count * CANDIDATES)
    places = np.array([_parameters(int(index)) for index in candidates])
    near = np.full(len(candidates), np.inf)
    for index in indices:
        near = np.minimum(near, np.linalg.norm(places - _parameters(index), axis=1))
    taken = []
    for _ in range(count):
        best = int(near.argmax())
        taken.append(int(candidates[best]))
        near = np.minimum(near, np.linalg.norm(places - places[best], axis=1))
        near[best] = -1.0
    out.parent.mkdir(parents=True, exist_ok=True)
    np.save(out, np.array(sorted(taken))[:, None])


def _parameters(index: int) -> np.ndarray:
    return unit_parameters(UniverseSpec(seed=SEED, index=index, size=2))


if __name__ == "__main__":
    main()
