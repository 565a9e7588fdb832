"""Meeting: how trainers find each other in a round, or agree that they do not.

Whoever comes first waits, for as long as its patience; both then see one word in the store, changed by comparing and
setting alone, so that never one of them waits for a model and the other has gone on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from voxload.errors import InternalError
from voxload.parallel.tournament.draws import successors

_MET, _LEFT = "met", "left"
_WHILE = 1.0
"""Seconds between two looks at whether a trainer that is waited for has ended."""


class Meeting:
    """What one trainer says to others through a store; used by one thread of one of its ranks.

    Parameters
    ----------
    store
        torch's, of all trainers.
    trainer
        This one's number.
    patience
        Seconds to wait for another trainer in a round.
    """

    def __init__(self, store: Any, trainer: int, *, patience: float) -> None:
        self._store, self._trainer, self._patience = store, trainer, patience
        self._missed: dict[int, int] = {}

    def arrive(self, number: int) -> None:
        """Say that this trainer plays a round."""
        self._store.set(f"round of/{self._trainer}", str(number))

    def leave(self) -> None:
        """Say that this trainer plays no more."""
        self._store.set(ended_key(self._trainer), "")

    def meets(self, number: int, partner: int) -> bool:
        """Wait for a partner in a round; tell whether both are there."""
        key = f"round/{number}/{min(self._trainer, partner)}-{max(self._trainer, partner)}"
        mine = f"waiting {self._trainer}"
        word = self._set(key, "", _LEFT if self._is_gone(partner) else mine)
        if word == _LEFT:
            return self._misses(partner)
        if word == f"waiting {partner}":
            word = self._set(key, word, _MET)
            if word == _MET:
                self._store.set(f"{key}/both", "")
        elif word == mine:
            is_met = self._awaited({partner: f"{key}/both"})
            word = _MET if is_met else self._set(key, mine, _LEFT)
        if word not in {_MET, _LEFT}:
            raise InternalError(
                f"round {number}", found=f"{key} is {word!r}", remedy="give each run a store of its own"
            )
        return word == _MET or self._misses(partner)

    def verdict(self, number: int, score: float, *, trainers: int, share: float) -> dict[int, int]:
        """Post a score; return whose model each trainer goes on with that has posted in time.

        Whoever first has all scores, or no patience left, decides for all.
        """
        keys = {each: f"score/{number}/{each}" for each in range(trainers)}
        self._store.set(keys[self._trainer], repr(score))
        if not self._awaited({each: key for each, key in keys.items() if not self._is_gone(each)}):
            for each, key in keys.items():
                if not self._store.check([key]):
                    self._misses(each)
        scores = {each: float(self._store.get(key)) for each, key in keys.items() if self._store.check([key])}
        mine = json.dumps(sorted(successors(scores, share=share).items()))
        return dict(json.loads(self._set(f"verdict/{number}", "", mine)))

    def _awaited(self, keys: Mapping[int, str]) -> bool:
        """Wait for what trainers are to set, with patience, but not for those that have ended; tell whether all did."""
        end = time.monotonic() + self._patience
        while True:
            left = {trainer: key for trainer, key in keys.items() if not self._store.check([key])}
            there = [key for trainer, key in left.items() if not self._store.check([ended_key(trainer)])]
            seconds = end - time.monotonic()
            if not there or seconds <= 0:
                return not left
            with suppress(RuntimeError):  # torch's DistStoreError: not in this while
                self._store.wait(there, timedelta(seconds=min(seconds, _WHILE)))

    def slowest(self, trainers: int) -> int:
        """Return the round behind which the slowest trainer is, of those that are waited for.

        0 where the store does not answer.
        """
        try:
            rounds = [self._rounds(each) for each in range(trainers) if not self._is_gone(each)]
        except RuntimeError:
            return 0
        return max(min(rounds) - 1, 0)

    def _is_gone(self, partner: int) -> bool:
        """Tell whether a trainer has ended, or was missed and has not come to a round since."""
        if partner == self._trainer:
            return False
        if self._store.check([ended_key(partner)]):
            return True
        return partner in self._missed and self._rounds(partner) == self._missed[partner]

    def _misses(self, partner: int) -> bool:
        """Note where a trainer was last seen, who is not waited for again before it comes; return False."""
        self._missed[partner] = self._rounds(partner)
        return False

    def _rounds(self, trainer: int) -> int:
        """Return the last round that a trainer has come to; 0 before its first."""
        key = f"round of/{trainer}"
        return int(self._store.get(key)) if self._store.check([key]) else 0

    def _set(self, key: str, expected: str, wanted: str) -> str:
        """Put a word into the place of another; return what is there then."""
        found: bytes = self._store.compare_set(key, expected, wanted)
        return found.decode()


def ended_key(trainer: int) -> str:
    """Return where it is said that a trainer plays no more, by itself or by whoever started it."""
    return f"ended/{trainer}"


def adopters(verdict: Mapping[int, int], trainer: int) -> list[int]:
    """Return the trainers that go on with the model of one, in order."""
    return [other for other, model in sorted(verdict.items()) if model == trainer and other != trainer]
