"""``writes_catalog.py FOLDER NAME COUNT``: append so many samples to a catalogue, one at a time; print each name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from voxload.catalog import Catalog, Entry, Rows
from voxload.catalog.append import append


def main() -> None:
    """Write volumes, and append each when it is there."""
    folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for number in range(count):
        sample = f"{name}-{number:04}"
        np.save(folder / f"{sample}.npy", np.full((2, 2, 2), number, np.int16))
        entry = Entry(sample, f"{sample}.npy", "", (2, 2, 2), "<i2", "DHW", 16, {"t": float(number)})
        append(folder, [Rows.of(Catalog.from_entries([entry], folder).whole, folder)])
        sys.stdout.write(f"{sample}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
