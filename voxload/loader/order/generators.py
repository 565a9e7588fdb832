"""Generators: places in the streams of torch's generators, in two numbers instead of five kilobytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from voxload.errors import UsageError

GeneratorPosition = Mapping[str, Any]
"""``{"seed", "draws"}``: the seed, and 32-bit numbers drawn since seeding. Or ``{"state"}``, the raw state: compressed,
as hex digits, about 5 KB."""
_REACH = 2**24
"""Draws that are searched: about a tenth of a second, and an epoch of sixteen million samples."""
_NEEDLE = 5
"""Numbers that are looked for: of 31 bits each, so what is found by chance never occurs."""
_WORD = torch.int32
"""A type of which each number takes one draw."""


class GeneratorPositions:
    """Finds the marks of one generator again and again, each from the one before; used by one thread."""

    def __init__(self) -> None:
        self._last: tuple[int, int, torch.Tensor] | None = None
        self._lost: int | None = None

    def of(self, generator: torch.Generator) -> GeneratorPosition:
        """Return where a generator on the CPU is now; it is left as it is."""
        seed, state = generator.initial_seed(), generator.get_state()
        origins = [(0, torch.Generator().manual_seed(seed).get_state())]
        if self._last is not None and self._last[0] == seed:
            origins.insert(0, self._last[1:])
        if self._lost == seed:  # a search that failed once would fail in each epoch
            origins = origins[:0]
        for draws, origin in origins:
            further = _distance(origin, state)
            if further is not None:
                self._last = (seed, draws + further, state)
                return {"seed": seed, "draws": draws + further}
        self._last, self._lost = None, seed
        return {"state": zlib.compress(state.numpy().tobytes(), 9).hex()}


def generator_at(mark: GeneratorPosition) -> torch.Generator:
    """Return a generator at a mark.

    Raises
    ------
    UsageError
        When it is none.
    """
    generator = torch.Generator()
    try:
        if "state" in mark:
            raw = zlib.decompress(bytes.fromhex(mark["state"]))
            return generator.set_state(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        generator.manual_seed(mark["seed"])
        _advance(generator, mark["draws"])
    except (KeyError, TypeError, ValueError, RuntimeError, zlib.error) as error:
        raise UsageError("order of the loader's state", found=f"{error!r}", expected="a generator's mark") from error
    return generator


def _distance(origin: torch.Tensor, target: torch.Tensor) -> int | None:
    """Return how many draws lie between two states; None where it is more than is searched, or they are unrelated."""
    needle = torch.empty(_NEEDLE, dtype=_WORD).random_(generator=_at(target)).numpy()
    walker = _at(origin)
    kept, done, size = np.empty(0, np.int32), 0, 2**10
    while done < _REACH:
        drawn = torch.empty(size, dtype=_WORD).random_(generator=walker).numpy()
        row = np.concatenate([kept, drawn])
        for place in np.flatnonzero(row[: 1 - _NEEDLE] == needle[0]).tolist():
            if np.array_equal(row[place : place + _NEEDLE], needle):
                return _verified(origin, target, done - len(kept) + place)
        done += size
        kept = row[1 - _NEEDLE :]
        size = min(2 * size, 2**20)
    return None


def _verified(origin: torch.Tensor, target: torch.Tensor, draws: int) -> int | None:
    """Return the draws again; None where they do not lead to the very state, which may hold half a pair of normals."""
    generator = _at(origin)
    _advance(generator, draws)
    return draws if torch.equal(generator.get_state(), target) else None


def _at(state: torch.Tensor) -> torch.Generator:
    return torch.Generator().set_state(state)


def _advance(generator: torch.Generator, draws: int) -> None:
    buffer = torch.empty(min(draws, 2**16), dtype=_WORD)
    for _ in range(draws // max(len(buffer), 1)):
        buffer.random_(generator=generator)
    torch.empty(draws % max(len(buffer), 1), dtype=_WORD).random_(generator=generator)
