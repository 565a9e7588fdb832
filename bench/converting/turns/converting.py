"""Voxload: SOURCE RESULT FORMAT CHUNKS COMPRESSION MEMORY; an empty word is the default."""

from __future__ import annotations

import sys

from bench.converting.meter import metered
from voxload.convert import Compression, ConvertOptions, StoredFormat, convert


def main() -> None:
    """Convert with as many threads as there are cores."""
    source, result, stored, chunk, compression, memory = sys.argv[1:]
    options = ConvertOptions(
        format=StoredFormat(stored),
        chunks=(int(chunk),) * 3 if chunk else None,
        compression=Compression(compression),
        max_memory=int(memory),
    )
    with metered():
        convert(source, result, options=options)


if __name__ == "__main__":
    main()
