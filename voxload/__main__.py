"""``python -m voxload``: the program, where its script is not on the path."""

from __future__ import annotations

from voxload.cli.start import main

if __name__ == "__main__":  # processes that are spawned import this module again, by another name
    main()
