"""Tournament: rounds in which a trainer meets others, judges two models on its own samples and keeps the better one.

"Let a thousand flowers bloom" (Jacobs et al., CLUSTER 2019, arXiv 1910.02270), and two of its variants: truncation
selection, and step sizes that change with the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.errors import UsageError, VoxloadError
from voxload.launch.collectives import all_gathered, broadcast_from_first
from voxload.parallel.tournament.draws import is_better, partners, rate_factor
from voxload.parallel.tournament.exchange import swapped
from voxload.parallel.tournament.meeting import Meeting, adopters

PAIRS, TRUNCATION = "pairs", "truncation"
"""Names of the ways to select."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a tournament is played; the same for all trainers."""

    every: int = 50
    """Steps between rounds."""
    held_out: float = 0.125
    """Share of a trainer's samples that it judges by, and does not learn from."""
    selection: str = PAIRS
    """`PAIRS`: two meet, and each keeps the better model by its own judgement. `TRUNCATION`: the worst go on with the
    models of the best, by what each says of its own."""
    replaced: float = 0.25
    """Share of the trainers that are replaced in a round of truncation, at most a half."""
    with_optimizer: bool = False
    """Whether moments of the optimiser go with the model."""
    mutate: bool = False
    """Whether the step size changes, up or down by a draw, where another's model is gone on with."""
    patience: float = 300.0
    """Seconds to wait for another trainer; then it forfeits the round."""

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 < self.held_out < 1 or not self.patience > 0 or not 0 < self.replaced <= 0.5:
            raise UsageError(
                "tournament",
                found=f"every {self.every} steps, {self.held_out} held out, patience {self.patience}, "
                f"{self.replaced} replaced",
                expected="1 step or more, a share between 0 and 1, some seconds, a share of at most a half",
            )
        if self.selection not in {PAIRS, TRUNCATION}:
            raise UsageError("tournament", found=repr(self.selection), expected=f"{PAIRS} or {TRUNCATION}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trainer decided in a round."""

    number: int
    """Of the round, from 1."""
    partner: int
    """Whom it was to meet; itself where it was left over, or keeps its own by the scores of all."""
    own: float | None = None
    """Loss of its own model; None where nothing was judged."""
    other: float | None = None
    """Loss of the other's; None where none came, or its trainer alone has judged it."""
    is_adopted: bool = False
    """Whether it goes on with the other's."""
    is_forfeit: bool = False
    """Whether the other did not come, or went away."""
    rate: float = 1.0
    """By what its step size changes."""


class Tournament:
    """One trainer's part in the rounds; every rank of the trainer makes one, and plays in it. For one thread.

    Parameters
    ----------
    rules
        How it is played.
    trainers, trainer
        How many there are, and which one this is.
    store
        torch's, that the ranks of all trainers reach.
    seed
        Of the draws; the same for all.
    """

    def __init__(self, rules: Rules, *, trainers: int, trainer: int, store: Any, seed: int = 0) -> None:
        if not 0 <= trainer < trainers:
            raise UsageError("trainer", found=str(trainer), expected=f"0 to {trainers - 1}")
        self.rules, self.trainers, self.trainer = rules, trainers, trainer
        self._store, self._seed = store, seed
        self._meeting = Meeting(store, trainer, patience=rules.patience)

    def play(self, number: int, tensors: Sequence[Tensor], judge: Callable[[], float]) -> Verdict:
        """Play a round: `tensors` then are those of the model that this trainer goes on with.

        Parameters
        ----------
        number
            Of the round, from 1; all trainers play the same ones.
        tensors
            Weights and buffers of the model as this rank has them, whole or its parts, changed in place; those of ranks
            of equal coordinates are exchanged.
        judge
            Returns the model's loss on this trainer's own samples, the same on all of its ranks.

        Raises
        ------
        UsageError
            When another trainer has another network.
        """
        if self.rules.selection == TRUNCATION:
            return self._truncated(number, tensors, judge)
        partner = partners(self.trainers, number, seed=self._seed)[self.trainer]
        if partner == self.trainer:
            self._agreed(lambda: self._arrives(number))
            return Verdict(number, partner)
        theirs = None
        if self._agreed(lambda: self._meets(number, partner)):
            theirs = self._swapped(number, partner, tensors)
        own = judge()
        if theirs is None:
            return Verdict(number, partner, own, is_forfeit=True)
        kept = [each.detach().clone() for each in tensors]
        _put(tensors, theirs)
        other = judge()
        if not is_better(other, own):
            _put(tensors, kept)
            return Verdict(number, partner, own, other)
        return Verdict(number, partner, own, other, is_adopted=True, rate=self._rate(number))

    def leave(self) -> None:
        """Say that this trainer plays no more; all of its ranks call this."""
        if _is_first():
            self._meeting.leave()

    def slowest(self) -> int:
        """Return the round behind which the slowest trainer is, of those that are waited for; for the first rank."""
        return self._meeting.slowest(self.trainers)

    def _truncated(self, number: int, tensors: Sequence[Tensor], judge: Callable[[], float]) -> Verdict:
        """Play a round of truncation selection."""
        own = judge()
        rules = self.rules

        def decided() -> dict[str, Any]:
            try:
                self._meeting.arrive(number)
                found = self._meeting.verdict(number, own, trainers=self.trainers, share=rules.replaced)
            except RuntimeError:  # torch's, of a store that does not answer
                found = {}
            return {"verdict": [list(pair) for pair in sorted(found.items())]}

        verdict = {int(trainer): int(model) for trainer, model in broadcast_from_first(decided)["verdict"]}
        for other in adopters(verdict, self.trainer):
            self._swapped(number, other, tensors)
        model = verdict.get(self.trainer)
        if model is None:  # too late for this round
            return Verdict(number, self.trainer, own, is_forfeit=True)
        if model == self.trainer:
            return Verdict(number, model, own)
        theirs = self._swapped(number, model, tensors)
        if theirs is None:
            return Verdict(number, model, own, is_forfeit=True)
        _put(tensors, theirs)
        return Verdict(number, model, own, is_adopted=True, rate=self._rate(number))

    def _arrives(self, number: int) -> bool:
        self._meeting.arrive(number)
        return False

    def _meets(self, number: int, partner: int) -> bool:
        self._meeting.arrive(number)
        return self._meeting.meets(number, partner)

    def _agreed(self, ask: Callable[[], bool]) -> bool:
        """Return what the first rank of the trainer is told; False where the store has gone."""

        def told() -> dict[str, bool]:
            try:
                return {"is_met": ask()}
            except RuntimeError:  # torch's, of a store that does not answer: there is nobody to meet
                return {"is_met": False}

        return bool(broadcast_from_first(told)["is_met"])

    def _swapped(self, number: int, partner: int, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the other trainer's tensors; None on all ranks where one of them did not get all of its own."""
        rank = dist.get_rank() if dist.is_initialized() else 0
        pair = sorted((self.trainer, partner))
        name = f"swap/{number}/{pair[0]}-{pair[1]}/{rank}"
        refusal: VoxloadError | None = None
        found: list[Tensor] | None = None
        try:
            is_first = self.trainer == pair[0]
            found = swapped(tensors, self._store, name, is_first=is_first, patience=self.rules.patience)
        except UsageError as error:
            refusal = error
        if any(all_gathered(refusal is not None, bool)):
            raise refusal or UsageError("tournament", found="a rank that met a trainer of another network")
        return found if all(all_gathered(found is not None, bool)) else None

    def _rate(self, number: int) -> float:
        return rate_factor(self.trainer, number, seed=self._seed) if self.rules.mutate else 1.0


@torch.no_grad()
def _put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for each, value in zip(tensors, values, strict=True):
        each.copy_(value)


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0
