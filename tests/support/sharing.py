"""How files of tests are shared out: each goes to one worker, and those whose tests start ranks all to the same one.

The process that ranks are forked from imports for ten seconds of a core, and each worker has one of its own. What
their tests share besides, trained networks and demo data, is then made once, too.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler.loadfile import LoadFileScheduling

ROOT = Path(__file__).parents[2]
_STARTS_RANKS = re.compile(r"tests\.support\.(ranks|launches)|\blaunch: |from tests\.training\b")
"""In the text of a file: what forks ranks, fixtures that do, and what the tests of training share."""


@cache
def _scope(file: str) -> str:
    path = ROOT / file
    return "ranks" if path.is_file() and _STARTS_RANKS.search(path.read_text(encoding="utf-8")) else file


class RanksTogether(LoadFileScheduling):  # type: ignore[misc] # xdist ships no types
    """Share out files, those that start ranks as one."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid.partition("::")[0])
