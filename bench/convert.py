"""Claim: converting costs little more than to read, compress and write the same bytes, in bounded memory.

`copy`: universes of 512^3 x 4 counts convert at no less than 0.6 of the speed of a program that reads pieces of 2 MiB,
compresses them with the same codec in two threads and writes them one behind the other. Asked for as well: a peak of at
most 1 GiB, and every byte of the source read once.
`rechunk`: one contiguous universe into chunks of 64^3, against h5repack (into HDF5), and against zarr-python and
rechunker (into Zarr), at least twice as fast as the fastest of those that run here; with memory and bytes moved.
`layout`: bytes that the eight ranks of a (2, 2, 2) grid decode for those that they want, at most 1.02 times as many
without halo and 1.15 with a halo of 1 that ends at the border; and files of 64 to 512 MiB. A periodic halo is shown.

Every turn is a process of its own, and what it wrote is removed after it; contenders take turns within a round, and
goals are medians of ratios of one round. Times are those of the work and its flush to the device, without the start of
the interpreter. The page cache is warmed before each turn, or emptied with --cold. The exit status is 1 when something
that was asked for was not reached. The peak is VmHWM, the bytes are rchar and wchar of /proc/self/io.

    python bench/convert.py --task copy --folder SCRATCH
    python bench/convert.py --task copy,rechunk,layout --cubes 1 --extent 256 --rounds 3 --json convert.json

rechunker needs a zarr older than this project's: give a Python that has both with --rechunker VENV/bin/python.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(importlib.import_module("bench.converting.command").main())
