"""Open files of this process, for tests that look for leaks."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path


def open_files() -> Counter[str]:
    """Return the paths of the files that are open, and under how many descriptors.

    Threads of earlier tests may close some meanwhile: a descriptor that is gone when it is looked at is none.
    """
    found: Counter[str] = Counter()
    for link in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):
            found[str(link.readlink())] += 1
    return Counter({name: count for name, count in found.items() if name.startswith("/")})
