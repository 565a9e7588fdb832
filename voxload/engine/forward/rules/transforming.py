"""Fourier transforms: along whole dimensions they are local; of cut ones, few modes are summed over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import pi, prod, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from voxload.engine.forward.modes import PICKS, SHIFTS, ZEROS, Kept, positions_of, shifts_of
from voxload.engine.forward.recording import Call
from voxload.engine.forward.rules.windows import bound
from voxload.engine.forward.ruling import Here, NoRule, Rule, Ruling, Same, Wishes
from voxload.engine.forward.sharding import Factor, Sharding
from voxload.engine.tensors import sent
from voxload.engine.total import all_sum

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

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
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

    def _summed(self, x: Tensor, dim: int, here: Here) -> Tensor:
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

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Transform; see Action."""
        return _transformed(function, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Pick:
    """Positions that are taken of the kept ones."""

    places: tuple[tuple[int, ...], ...]
    """Of every dimension, where among the kept ones."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Take them; see Action."""
        x: Tensor = args[0]
        for dim, places in enumerate(self.places):
            x = _picked(x, dim, range(x.shape[dim]), places)
        return x


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zeros of the shape of a whole spectrum."""

    shape: tuple[int, ...]

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], here: Here) -> Any:  # noqa: ARG002 - see Action
        """Make them; see Action."""
        return args[0].new_zeros(self.shape, dtype=kwargs.get("dtype"))


def transform(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:
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


def shift(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a shift of modes does along whole dimensions; see Rule."""
    if any(by and cuts[0].axes(number) for number, by in enumerate(shifts_of(call))):
        raise NoRule("it shifts an axis that is cut")
    return Ruling(cuts, cuts, Same())


def _shift_kept(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what a shift does with what is kept: it is put in another order."""
    cut, before, shifts = cuts[0], cuts[0].kept(), shifts_of(call)
    moved = [
        sorted(((place + by) % extent, at) for at, place in enumerate(places))
        for places, by, extent in zip(before, shifts, cut.shape, strict=True)
    ]
    kept = tuple(tuple(place for place, _ in each) for each in moved)
    return Ruling((cut,), (_partly(cut.shape, kept),), Pick(tuple(tuple(at for _, at in each) for each in moved)))


def _pick_kept(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
    """Return what an index takes of what is kept: every rank has it whole."""
    (made,), before = call.made, cuts[0].kept()
    positions = positions_of(call.args[1], cuts[0].shape) or []
    places = tuple(tuple(own.index(one) for one in each) for own, each in zip(before, positions, strict=True))
    return Ruling(cuts, (Sharding.whole(made.shape),), Pick(places))


def _zeros_kept(call: Call, cuts: tuple[Sharding, ...], wishes: Wishes) -> Ruling:  # noqa: ARG001 - see Rule
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
