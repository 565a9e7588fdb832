"""Modes: which positions of a spectrum are looked at; what keeps few needs no transform of the whole.

A Fourier neural operator transforms a volume and takes some low modes (Li et al., 2021). A mode is a sum over all
voxels, so each rank can sum over its own, and the ranks' sums of these few modes are summed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from voxload.engine.forward.recording import Call, Given, Recording, Value
from voxload.engine.forward.trees import leaves, mapped, token

Kept = tuple[tuple[int, ...], ...]
"""Positions that are looked at, rising, of every dimension."""
TRANSFORMS: frozenset[Any] = frozenset(
    getattr(torch.fft, name) for name in ("fft", "fft2", "fftn", "rfft", "rfft2", "rfftn")
)
SHIFTS: frozenset[Any] = frozenset([torch.fft.fftshift, torch.fft.ifftshift])
PICKS: frozenset[Any] = frozenset([Tensor.__getitem__])
ZEROS: frozenset[Any] = frozenset([torch.zeros_like])


def modes_kept(recording: Recording) -> dict[int, Kept]:
    """Return, by the numbers of values, what is looked at of spectra of which nothing else is asked for; pure."""
    users: defaultdict[int, list[Call]] = defaultdict(list)
    for call in recording.calls:
        for number in {value.number for value in call.taken}:
            users[number].append(call)
    returned = {value.number for value in leaves(recording.result) if isinstance(value, Value)}
    # Calls that nothing tells apart are carried out alike: what any of them keeps, all of them keep.
    alike: defaultdict[Any, list[tuple[int, Kept | None]]] = defaultdict(list)
    for call in recording.calls:
        if call.function in TRANSFORMS and len(call.made) == 1:
            key = call.function, token(mapped((call.args, dict(call.kwargs)), _shape))
            alike[key].append((call.made[0].number, _kept(call.made[0], users, returned)))
    found: dict[int, Kept] = {}
    for group in alike.values():
        known = [kept for _, kept in group if kept is not None]
        if len(known) == len(group):
            union = tuple(tuple(sorted(set().union(*each))) for each in zip(*known, strict=True))
            found |= dict.fromkeys([number for number, _ in group], union)
    return found


def _shape(leaf: Any) -> Any:
    return leaf.shape if isinstance(leaf, Value | Given) else leaf


def _kept(value: Value, users: Mapping[int, list[Call]], returned: set[int]) -> Kept | None:
    """Return what is looked at of a spectrum, None where that is not known."""
    if value.number in returned:
        return None
    wanted: list[set[int]] = [set() for _ in value.shape]
    for call in users.get(value.number, ()):
        positions = _wanted(value, call, users, returned)
        if positions is None:
            return None
        for one, more in zip(wanted, positions, strict=True):
            one.update(more)
    kept = tuple(tuple(sorted(one)) for one in wanted)
    return kept if all(kept) else None


def _wanted(
    value: Value, call: Call, users: Mapping[int, list[Call]], returned: set[int]
) -> Sequence[Iterable[int]] | None:
    """Return what one call looks at of a spectrum."""
    if call.written or not call.args or not isinstance(call.args[0], Value) or len(call.taken) > 1:
        return None
    if call.function in ZEROS:
        return [()] * len(value.shape)
    if call.function in PICKS:
        return positions_of(call.args[1], value.shape)
    if call.function in SHIFTS:
        kept = _kept(call.made[0], users, returned)
        shifts = shifts_of(call)
        if kept is None:
            return None
        return [
            [(place - shift) % extent for place in places]
            for places, shift, extent in zip(kept, shifts, value.shape, strict=True)
        ]
    return None


def positions_of(index: Any, shape: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return the positions along every dimension that an index of slices takes; None for other indices."""
    entries = list(index) if isinstance(index, tuple) else [index]
    if any(not (isinstance(each, slice) or each is Ellipsis) for each in entries):
        return None
    fill = [slice(None)] * (len(shape) - sum(1 for each in entries if each is not Ellipsis))
    if Ellipsis in entries:
        at = entries.index(Ellipsis)
        entries[at : at + 1] = fill
    else:
        entries += fill
    return [tuple(range(extent)[entry]) for entry, extent in zip(entries, shape, strict=True)]


def shifts_of(call: Call) -> list[int]:
    """Return by how much a shift moves every dimension."""
    shape = call.made[0].shape
    dims = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
    chosen = range(len(shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    found = [0] * len(shape)
    for dim in chosen:
        extent = shape[dim]
        found[dim] = extent // 2 if call.function is torch.fft.fftshift else -(extent // 2)
    return found
