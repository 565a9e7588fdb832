"""Fourier transforms: along whole dimensions they are local; of cut ones, few modes are summed over the ranks.

Modes: which positions of a spectrum are looked at; what keeps few needs no transform of the whole. A Fourier neural
operator transforms a volume and takes some low modes (Li et al., 2021). A mode is a sum over all voxels, so each rank
can sum over its own, and the ranks' sums of these few modes are summed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi, prod, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.recording import Call, Given, Recording, Value
from voxload.engine.forward.rule import Context, NoRule, Preferences, Rule, Ruling, Same, bound
from voxload.engine.forward.sharding import Factor, Sharding
from voxload.engine.model.pytrees import leaves, mapped, token
from voxload.engine.run.collectives import all_sum
from voxload.engine.run.tensors import sent

Kept = tuple[tuple[int, ...], ...]
"""Positions that are looked at, rising, of every dimension."""
FORWARD_TRANSFORMS: frozenset[Any] = frozenset(
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
        if call.function in FORWARD_TRANSFORMS and len(call.made) == 1:
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


_FORWARD = ("fft", "fft2", "fftn", "rfft", "rfft2", "rfftn")
_INVERSE = ("ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "hfft", "ihfft")
TRANSFORMS: frozenset[Any] = frozenset(getattr(torch.fft, name) for name in (*_FORWARD, *_INVERSE))
_NAMES = ("input", "s", "dim", "norm")
_FEW = 8
"""A spectrum of which less than this part is kept is no volume that is made whole."""


@dataclass(frozen=True, slots=True)
class Modes:
    """Sums of few modes: along whole dimensions by a fast transform, along cut ones by this rank's part of the sum."""

    cut: Sharding
    """Cut of the input."""
    dims: tuple[int, ...]
    """Dimensions that are transformed; of real numbers, half of the last one is kept."""
    kept: Kept
    scale: float
    is_half: bool
    """Whether it is a transform of real numbers, which gives half of the last dimension."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Transform and sum; see Action."""
        x: Tensor = args[0]
        axes = self.cut.axes()
        for dim in sorted(self.dims, key=lambda dim: (bool(self.cut.axes(dim)), -dim)):
            x = self._summed(x, dim, here) if self.cut.axes(dim) else self._transformed(x, dim)
        for dim in range(x.ndim):
            if dim not in self.dims:
                x = _picked(x, dim, range(x.shape[dim]), self.kept[dim])
        copies = prod(blocks for axis, blocks in enumerate(here.mesh) if axis not in axes)
        whole = all_sum(torch.view_as_real(x).contiguous(), here.exchange, world=False)
        found: Tensor = torch.view_as_complex(whole) * (self.scale / copies)
        return found

    def _transformed(self, x: Tensor, dim: int) -> Tensor:
        is_half = self.is_half and dim == self.dims[-1] and not x.is_complex()
        modes = _transformed(torch.fft.rfft if is_half else torch.fft.fft, x, dim=dim)
        return _picked(modes, dim, range(modes.shape[dim]), self.kept[dim])

    def _summed(self, x: Tensor, dim: int, here: Context) -> Tensor:
        """Return this rank's part of the sums over a dimension, which is put where it was."""
        extent = self.cut.shape[dim]
        places = torch.tensor(self.cut.positions(dim, here.coords), dtype=torch.int64)
        # Whole numbers of turns are taken off before anything is rounded.
        turns = (places[:, None] * torch.tensor(self.kept[dim], dtype=torch.int64)) % extent
        waves = torch.polar(torch.ones((), dtype=torch.float64), turns.double() * (-2 * pi / extent))
        real, imaginary = (sent(part.to(_real(x)), x.device) for part in (waves.real, waves.imag))
        if x.is_complex():
            found = torch.tensordot(x, torch.complex(real, imaginary), dims=([dim], [0]))
        else:
            found = torch.complex(*(torch.tensordot(x, part, dims=([dim], [0])) for part in (real, imaginary)))
        result: Tensor = found.movedim(-1, dim)
        return result


@dataclass(frozen=True, slots=True)
class Local:
    """A transform along dimensions that every rank has whole."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Transform; see Action."""
        return _transformed(function, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Pick:
    """Positions that are taken of the kept ones."""

    places: tuple[tuple[int, ...], ...]
    """Of every dimension, where among the kept ones."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Take them; see Action."""
        x: Tensor = args[0]
        for dim, places in enumerate(self.places):
            x = _picked(x, dim, range(x.shape[dim]), places)
        return x


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zeros of the shape of a whole spectrum."""

    shape: tuple[int, ...]

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Context) -> Any:  # noqa: ARG002 - see Action
        """Make them; see Action."""
        return args[0].new_zeros(self.shape, dtype=kwargs.get("dtype"))


def transform(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:
    """Return what a Fourier transform does; see Rule."""
    cut, (made,) = cuts[0], call.made
    given = bound(_NAMES, call.args, {"s" if name == "n" else name: each for name, each in call.kwargs.items()})
    name, count = call.function.__name__.removeprefix("fft_"), len(cut.dims)
    dims = _dims(name, given, count)
    changed = [number for number in range(count) if cut.shape[number] != made.shape[number]]
    if not any(number in dims for number, *_ in cut.cuts()):
        result = cut
        for number in changed:
            result = result.with_dim(number, Sharding.whole(made.shape).dims[number])
        return Ruling((cut,), (result,), Local())
    if wishes.kept is None or name not in _FORWARD:
        raise NoRule("it transforms an axis that is cut, and more than some modes of it are asked for")
    if given["s"] is not None or any(number not in dims for number, *_ in cut.cuts()):
        raise NoRule("it transforms a part of what is cut")
    if any(len(cut.dims[number]) > 1 for number, *_ in cut.cuts()):
        raise NoRule("it transforms axes that are one dimension")
    total = prod(cut.shape[number] for number in dims)
    scale = {None: 1.0, "backward": 1.0, "ortho": 1 / sqrt(total), "forward": 1 / total}[given["norm"]]
    action = Modes(cut, dims, wishes.kept, scale, name.startswith("r"))
    modes = prod(map(len, wishes.kept))
    nbytes = modes * made.dtype.itemsize if modes * _FEW > prod(made.shape) else 0
    return Ruling((cut,), (_partly(made.shape, wishes.kept),), action, nbytes)


def shift(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a shift of modes does along whole dimensions; see Rule."""
    if any(by and cuts[0].axes(number) for number, by in enumerate(shifts_of(call))):
        raise NoRule("it shifts an axis that is cut")
    return Ruling(cuts, cuts, Same())


def _shift_kept(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a shift does with what is kept: it is put in another order."""
    cut, before, shifts = cuts[0], cuts[0].kept(), shifts_of(call)
    moved = [
        sorted(((place + by) % extent, at) for at, place in enumerate(places))
        for places, by, extent in zip(before, shifts, cut.shape, strict=True)
    ]
    kept = tuple(tuple(place for place, _ in each) for each in moved)
    return Ruling((cut,), (_partly(cut.shape, kept),), Pick(tuple(tuple(at for _, at in each) for each in moved)))


def _pick_kept(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what an index takes of what is kept: every rank has it whole."""
    (made,), before = call.made, cuts[0].kept()
    positions = positions_of(call.args[1], cuts[0].shape) or []
    places = tuple(tuple(own.index(one) for one in each) for own, each in zip(before, positions, strict=True))
    return Ruling(cuts, (Sharding.whole(made.shape),), Pick(places))


def _zeros_kept(call: Call, cuts: tuple[Sharding, ...], wishes: Preferences) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what makes zeros of the shape of a spectrum: every rank has all of them."""
    return Ruling(cuts, (Sharding.whole(call.made[0].shape),), Zeros(call.made[0].shape))


ON_MODES: dict[Any, Rule] = {
    **dict.fromkeys(SHIFTS, _shift_kept),
    **dict.fromkeys(PICKS, _pick_kept),
    **dict.fromkeys(ZEROS, _zeros_kept),
}
"""Rules for spectra of which some modes are kept; `modes_kept` names none that other functions take."""


def _dims(name: str, given: dict[str, Any], count: int) -> tuple[int, ...]:
    """Return the dimensions that a function of this name transforms."""
    dim = given["dim"]
    if dim is None:
        sizes = given["s"]
        dim = -1 if name.endswith("fft") else (-2, -1) if name.endswith("2") else range(count if sizes is None else 0)
        if sizes is not None and name.endswith("n"):
            raise NoRule("its sizes are given, and its dimensions are not")
    return tuple(each % count for each in ([dim] if isinstance(dim, int) else dim))


def _partly(shape: Sequence[int], kept: Kept) -> Sharding:
    """Return the cut of a spectrum of which every rank has these modes alone."""
    dims = Sharding.whole(shape).dims
    return Sharding(
        tuple(
            dim if len(places) == extent else tuple(replace(factor, kept=places) for factor in dim or (Factor(extent),))
            for dim, places, extent in zip(dims, kept, shape, strict=True)
        )
    )


def _picked(x: Tensor, dim: int, known: range, places: Sequence[int]) -> Tensor:
    """Return positions along a dimension; a view where they are neighbours."""
    if len(places) == len(known) and tuple(places) == tuple(known):
        return x
    if tuple(places) == tuple(range(places[0], places[0] + len(places))):
        return x.narrow(dim, places[0], len(places))
    return x.index_select(dim, sent(torch.tensor(places), x.device))


def _transformed(function: Callable[..., Any], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Return a transform; of nothing, which some libraries refuse, on a rank that owns nothing."""
    pads = [each for number in reversed(range(x.ndim)) for each in (0, int(x.shape[number] == 0))]
    result: Tensor = function(functional.pad(x, pads) if any(pads) else x, *args, **kwargs)
    return result[tuple(slice(0) if extent == 0 else slice(None) for extent in x.shape)] if any(pads) else result


def _real(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype in {torch.float64, torch.complex128} else torch.float32
