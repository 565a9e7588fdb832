"""Planning: how every call of a recording is carried out for one cut of the volume; pure, the same on all ranks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from voxload.engine.arithmetic.windows import even_bounds
from voxload.engine.forward.in_place import Writes, refuse_both
from voxload.engine.forward.layer_uses import WEIGHTED, LayerUses, PlannedSplit, not_split
from voxload.engine.forward.recording import Call, Given, Recording, Value, name_of
from voxload.engine.forward.redistribution import Move, plan_move
from voxload.engine.forward.rule import Action, Kept, NoRule, Preferences, Ruling, whole
from voxload.engine.forward.rules.fourier import modes_kept
from voxload.engine.forward.rules.table import MEETING, RULES, RULES_ON_MODES, WRITERS
from voxload.engine.forward.sharding import Factor, Sharding
from voxload.engine.model.pytrees import TENSOR, leaves, mapped, token
from voxload.engine.model.sync_batch_norm import batch_norm_of_world, whole_refused
from voxload.errors import UsageError

_ALIASES = frozenset({"axis", "keepdims", "x", "x2", "out"})
"""Names of arguments that torch takes for numpy's sake, and a place for the result: rules look for none of them."""
_TRAINING = 5
"""Place of an argument of batch_norm_of_world."""
GATHER_LIMIT = 64 * 2**20
"""Bytes up to which tensors are made whole for a call that has no split form."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCall:
    """How one call is carried out."""

    taken: tuple[Sharding, ...]
    """Cut of each value that it takes, as it is."""
    moves: tuple[Move | None, ...]
    """What is done with each of its values before; None where nothing."""
    inputs: tuple[Sharding, ...]
    """Cut of each value then."""
    action: Action
    results: tuple[Sharding, ...]
    """Cut of each value that it gives."""
    fallback: Fallback | None
    """What of it is made whole."""
    described: Any = None
    """Its arguments: shardings in the places of what is cut, `TENSOR` and shapes in those of other tensors."""
    copies: bool = False
    """Whether what it gives must not share memory with what it takes: something of either is written into."""
    has_twin: bool = False
    """Whether a call looks the same that a plan has carried out otherwise, with another weight."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A call of which a part or all is made whole, and what that takes."""

    call: Call
    reason: str
    nbytes: int
    """Bytes of what is made whole."""

    @property
    def name(self) -> str:
        """The function, and the module that calls it."""
        return f"{name_of(self.call.function)} in {self.call.where}"


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPlan:
    """The plan of a forward for all ranks of a sample group."""

    steps: Mapping[Any, PlannedCall]
    """By what tells a call from others: function, arguments, and cuts of its values."""
    sequence: tuple[tuple[Call, PlannedCall], ...]
    """The calls that take what is cut, in the order of the forward pass, and how they are carried out."""
    results: Mapping[Sharding, Move]
    """What is done with the results that are cut as the key says, before they are returned."""
    fallbacks: tuple[Fallback, ...]
    """Calls that run on tensors that are made whole, all of them or along an axis."""
    follows_whole: bool = False
    """Whether calls that take what every rank has whole are among them."""


def plan_forward(
    recording: Recording,
    given: Sequence[Sharding],
    *,
    min_width: int = 0,
    gather_limit: int = GATHER_LIMIT,
    returns_whole: bool = False,
    columns: bool = False,
    split: PlannedSplit | None = None,
) -> ForwardPlan:
    """Return how the calls of `recording` are carried out where the network is given tensors that are cut so.

    The choices are those of `voxload.engine.forward.plan_cache.SplitOptions`.

    Raises
    ------
    UsageError
        For a call that has no split form and takes or gives more than `gather_limit` bytes, and for a plan that names
        what is no layer with weights, or whose layers cannot be split as it says.
    """
    wishes = Preferences(min_width=min_width, columns=columns)
    planner = _Planner(recording, wishes, gather_limit, given)
    if split is not None:
        # What leaves the network is cut as it is without a plan, whatever that would take.
        plain = _Planner(recording, wishes, sys.maxsize, given)
        plain.plan_all()
        planner.uses = LayerUses(recording, split, min_width)
    planner.plan_all()
    results = dict[Sharding, Move]()
    axes = frozenset[int]().union(*(cut.axes() for cut in given))
    for value in leaves(recording.result):
        if isinstance(value, Value):
            cut = planner.cuts[value.number]
            known = cut if split is None else plain.cuts[value.number]
            move = plan_move(cut, Sharding.whole(cut.shape) if returns_whole else returned(known, axes))
            if results.setdefault(cut, move) != move:
                raise _two_ways(cut)
    return planner.planned(results)


def _two_ways(cut: Sharding) -> UsageError:
    return UsageError(
        "results of a network that is split by a plan",
        found=f"two of the shape {cut.shape} that are cut alike, and without a plan would leave it otherwise",
        expected="results that are told apart by their shapes or cuts",
        remedy="give both of their layers the same uses",
    )


def returned(cut: Sharding, axes: frozenset[int]) -> Sharding:
    """Return the cut in which a result leaves the network: as the grid cuts an axis of its extent, or whole.

    What is not cut along all `axes` that cut what was given would be on several ranks, and counted by each: it leaves
    whole. So does what has fewer voxels along an axis than there are blocks.
    """
    result = cut if cut.axes() == axes else Sharding.whole(cut.shape)
    for number, _, factor in result.cuts():
        if len(cut.dims[number]) > 1 or number < 2 or factor.axis is None:
            return Sharding.whole(cut.shape)
        if factor.extent < len(factor.bounds) - 1:
            return Sharding.whole(cut.shape)
        bounds = even_bounds(factor.extent, len(factor.bounds) - 1)
        result = result.with_dim(number, [Factor(factor.extent, factor.axis, bounds)])
    return result


def key_of(function: Any, args: Any, kwargs: Any) -> Any:
    """Return what tells a call from others; in its arguments, shardings stand for values that are cut."""
    return function, token(args), token(kwargs)


class _Planner:
    """Plans one call after the other."""

    def __init__(self, recording: Recording, wishes: Preferences, limit: int, given: Sequence[Sharding]) -> None:
        self._calls, self._plain, self._limit = recording.calls, wishes, limit
        self.uses: LayerUses | None = None
        """What layers use the axes for; then what is whole is followed too, for layers that may cut it."""
        self._users = recording.users()
        self._writes = Writes(recording)
        self._kept = modes_kept(recording)
        self._copies: set[Any] = set()
        self._given_back: set[Any] = set()
        self.cuts = {value.number: cut for value, cut in zip(recording.given, given, strict=True)}
        """Of each value."""
        self.steps: dict[Any, PlannedCall] = {}
        self.sequence: list[tuple[Call, Any]] = []
        self.fallbacks: list[Fallback] = []

    def plan_all(self) -> None:
        """Plan all calls, one after the other."""
        for index, call in enumerate(self._calls):
            self._plan(index, call)

    def _plan(self, index: int, call: Call) -> None:
        """Plan one call; the values that it takes have their cuts."""
        # What every rank has whole is a tensor like any other when the forward runs.
        args, kwargs = mapped((call.args, dict(call.kwargs)), self._lowered)
        met = replace(call, args=args, kwargs=kwargs)
        cuts = tuple(self.cuts[value.number] for value in met.taken)
        self._writes.refuse(index, call, self.cuts)
        if all(cut.is_whole for cut in cuts) and call.function is batch_norm_of_world and call.args[_TRAINING]:
            raise whole_refused()
        if not cuts:
            self.cuts |= {value.number: Sharding.whole(value.shape) for value in call.made}
            return
        described = mapped((args, kwargs), self._described)
        wishes = self._wishes(index)
        key = key_of(met.function, *described), wishes.split
        if key not in self.steps:
            known = len(self.fallbacks)
            is_planned = met.function in WEIGHTED and wishes.split is not None and not wishes.split.is_in_space
            if all(cut.is_whole for cut in cuts) and not is_planned:
                ruling = whole(met, cuts)
            else:
                ruling = self._ruling(met, cuts, wishes)
            if not is_planned:  # what a plan asks for is no surprise
                has_plan = wishes.split is not None and met.function in WEIGHTED
                self._watch(met, cuts, ruling, is_told=not has_plan)
            pairs = zip(cuts, ruling.inputs, strict=True)
            moves = tuple(None if cut == taken else plan_move(cut, taken) for cut, taken in pairs)
            made_whole = self.fallbacks[-1] if len(self.fallbacks) > known else None
            taken = (cuts, moves, ruling.inputs)
            self.steps[key] = PlannedCall(*taken, ruling.action, ruling.results, made_whole, described)
        if self._writes.copies(call):
            self._copies.add(key)
        if self._writes.gives_back(call):
            self._given_back.add(key)
        if key in self._copies & self._given_back:
            refuse_both(call)
        self.sequence.append((call, key))
        for value, cut in zip(call.made, self.steps[key].results, strict=True):
            self.cuts[value.number] = cut
        self._writes.land(value for value in call.made if self.cuts[value.number].is_whole)

    def planned(self, results: Mapping[Sharding, Move]) -> ForwardPlan:
        """Return the plan of the calls so far."""
        looks = Counter(look for look, _ in self.steps)
        steps = {
            key: replace(step, copies=key in self._copies, has_twin=looks[key[0]] > 1)
            for key, step in self.steps.items()
        }
        sequence = tuple((call, steps[key]) for call, key in self.sequence)
        by_look = {look: step for (look, _), step in steps.items()}
        return ForwardPlan(by_look, sequence, results, tuple(self.fallbacks), follows_whole=self.uses is not None)

    def _lowered(self, leaf: Any) -> Any:
        """Return an argument, whole values as tensors that are given, unless they are followed."""
        is_whole = self.uses is None and isinstance(leaf, Value) and self.cuts[leaf.number].is_whole
        return Given(leaf.shape, leaf.dtype) if is_whole else leaf

    def _described(self, leaf: Any) -> Any:
        if isinstance(leaf, Given):
            return TENSOR, leaf.shape
        return self.cuts[leaf.number] if isinstance(leaf, Value) else leaf

    def _ruling(self, call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
        try:
            return ruled(call, cuts, wishes)
        except NoRule as error:
            if wishes.split is not None and call.function in WEIGHTED and not wishes.split.is_in_space:
                raise not_split(call, wishes.split, str(error)) from error
            return self._fallback(call, cuts, str(error))

    def _watch(self, call: Call, cuts: tuple[Sharding, ...], ruling: Ruling, *, is_told: bool) -> None:
        """Count what a call with a split form takes whole along an axis that was cut; warn of it where `is_told`."""
        nbytes = ruling.nbytes
        for value, cut, taken in zip(call.taken, cuts, ruling.inputs, strict=True):
            if not cut.axes() <= taken.axes():
                blocks = prod(len(factor.bounds) - 1 for *_, factor in taken.cuts())
                nbytes += prod(value.shape) * value.dtype.itemsize // blocks
        if nbytes and not (self.fallbacks and self.fallbacks[-1].call is call):
            self._admit(call, "it takes a cut axis whole", nbytes)
            if not is_told:  # the layer before it was cut by a plan
                self.fallbacks.pop()

    def _fallback(self, call: Call, cuts: tuple[Sharding, ...], reason: str) -> Ruling:
        """Return the ruling by which a call runs on whole tensors."""
        if not call.written and call.made and all(value in call.taken for value in call.made):
            # It gives back what it got, such as a dropout in evaluation.
            tensors = [leaf for leaf in leaves((call.args, dict(call.kwargs))) if isinstance(leaf, Value | Given)]
            kept = tuple(cuts[call.taken.index(value)] for value in call.made)
            return Ruling(tuple(cuts), kept, Kept(tuple(map(tensors.index, call.made))))
        writes = bool(call.written) or any(value in call.taken for value in call.made)
        nbytes = sum(prod(value.shape) * value.dtype.itemsize for value in (*call.taken, *call.made))
        self._admit(call, f"{reason}, and writes into a volume" if writes else reason, nbytes, is_refused=writes)
        return whole(call, cuts)

    def _admit(self, call: Call, reason: str, nbytes: int, *, is_refused: bool = False) -> None:
        """Write down what is made whole; raise UsageError beyond the limit."""
        if nbytes > self._limit or is_refused:
            raise UsageError(
                f"{name_of(call.function)} in {call.where}",
                found=f"{reason}; whole, it takes {nbytes:,} bytes",
                expected="a split form" if is_refused else f"at most {self._limit:,} bytes on every rank",
                remedy="compute a new tensor instead" if is_refused else "raise gather_limit",
            )
        self.fallbacks.append(Fallback(call, reason, nbytes))

    def _wishes(self, index: int) -> Preferences:
        kept = [self._kept.get(value.number) for value in self._calls[index].made]
        split = None if self.uses is None else self.uses.of(index)
        return replace(self._plain, cut=self._wish(index), kept=kept[0] if len(kept) == 1 else None, split=split)

    def _wish(self, index: int) -> Sharding | None:
        """Return the cut of the first value that the result of a call will meet, where that is known by now.

        So a decoder's blocks are made where the encoder's are, and no voxel moves twice.
        """
        number = met_later(self._calls, self._users, index, self.cuts)
        return None if number is None else self.cuts[number]


def met_later(
    calls: Sequence[Call], users: Mapping[int, Sequence[int]], index: int, known: Container[int]
) -> int | None:
    """Return the number of the first of the `known` values that a later call takes with the result of call `index`.

    Only calls that keep the extents lie between; None where there is no such value.
    """
    waiting = [value.number for value in calls[index].made]
    seen = set(waiting)
    while waiting:
        number = waiting.pop(0)
        for user in users.get(number, ()):
            if user <= index:
                continue
            call = calls[user]
            others = [each.number for each in call.taken if each.number in known and each.number != number]
            if others:
                return others[0]
            fresh = [value.number for value in call.made if value.number not in seen]
            if len(call.taken) == 1 and call.made and call.made[0].shape[2:] == call.taken[0].shape[2:]:
                waiting += fresh
                seen.update(fresh)
    return None


def ruled(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what the rule for a function says; raises NoRule for calls that it does not know in this form."""
    rule = (RULES_ON_MODES if cuts[0].is_partly_kept else RULES).get(call.function)
    if rule is None or (call.written and rule not in WRITERS):
        raise NoRule("it has no split form")
    if _ALIASES & call.kwargs.keys() or not call.args:
        raise NoRule("it names its arguments otherwise than torch's documentation does, or all of them")
    if rule not in MEETING and not isinstance(call.args[0], Value):
        raise NoRule("its first argument is no volume")
    found = rule(call, cuts, wishes)
    if [cut.shape for cut in found.results] != [value.shape for value in call.made]:
        raise NoRule("its rule finds another shape than torch does")
    return found
