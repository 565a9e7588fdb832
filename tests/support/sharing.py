"""How files of tests are shared out: each goes to one worker, and those with a long preparation in common to one.

The process that ranks are forked from imports for ten seconds of a core, and each worker has one of its own. What
tests of ranks share besides, trained networks and demo data, is then made once, too. To import MONAI, and to compile
for the first time, takes four seconds each.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler.loadfile import LoadFileScheduling

ROOT = Path(__file__).parents[2]
_SHARED = {
    "ranks": re.compile(r"tests\.support\.(ranks|launches)|\blaunch: |from tests\.training\b"),
    "MONAI": re.compile(r"\bmonai\b"),
    "compiled": re.compile(r"\bcompiled\(|\btorch\.compile\b"),
}
"""What is in the text of a file whose tests start ranks, directly or by a fixture, import MONAI, or compile."""


@cache
def _scope(file: str) -> str:
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return next((name for name, words in _SHARED.items() if words.search(text)), file)


class Shared(LoadFileScheduling):  # type: ignore[misc] # xdist ships no types
    """Share out files, some of them together."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid.partition("::")[0])
