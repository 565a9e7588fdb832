"""Augment: what is done to each sample, and the seed that decides how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from voxload.augment.draws import Draws
from voxload.augment.orientation import Orientation
from voxload.augment.symmetries import CubeSymmetries, Flips, Permutations, Rotations
from voxload.augment.window import ClassCentres, ClassVoxels, Placement, RandomCrop, Translations
from voxload.errors import UsageError
from voxload.geometry import Boundary, Box

Part = Translations | RandomCrop | Flips | Permutations | Rotations | CubeSymmetries
"""What an augmentation consists of."""
_SYMMETRIES = (Flips, Permutations, Rotations, CubeSymmetries)
_CENTRES, _REPEATS = 1, 2
"""Set the streams of hashes, of four numbers, and of further draws, of five, apart from first draws, of three."""

P = TypeVar("P", Translations, RandomCrop)


class Augment:
    """Turns, translates and crops samples; each draw follows from (seed, epoch, sample, which draw of it) alone.

    Whatever order the parts are given in, a sample is first translated, then cropped, then turned; several symmetries
    are drawn each for itself and done in the order given. Immutable, so safe to share; no generator is kept.

    Parameters
    ----------
    parts
        At most one `Translations`, at most one `RandomCrop`, and any `Flips`, `Permutations`, `Rotations` and
        `CubeSymmetries`.
    seed
        A number of 0 or more, the same on all ranks.
    vectors
        By field, the three channels that are components of a vector along (d, h, w): they are exchanged and change
        their signs with the sample. An axial vector, such as vorticity, turns so under rotations only.

    Raises
    ------
    UsageError
        When a part is none, stands twice, or a number is negative.

    Examples
    --------
    >>> augment = Augment(Translations(), CubeSymmetries(), seed=7)
    >>> augment.place((64, 64, 64), epoch=0, index=5).window.shape
    (64, 64, 64)
    """

    def __init__(self, *parts: Part, seed: int = 0, vectors: Mapping[str, Sequence[int]] | None = None) -> None:
        if not parts or not all(isinstance(part, Part) for part in parts):
            raise UsageError(
                "Augment", found=repr(parts), expected="parts such as Flips(), Translations(), RandomCrop()"
            )
        if not _is_count(seed):
            raise UsageError("seed of Augment", found=repr(seed), expected="a number of 0 or more")
        self.parts = parts
        self.seed = seed
        self.vectors = {field: _channels(field, channels) for field, channels in (vectors or {}).items()}
        self._translations = _only(Translations, parts)
        self._crop = _only(RandomCrop, parts)
        self._symmetries = tuple(part for part in parts if isinstance(part, _SYMMETRIES))

    @property
    def centres(self) -> ClassCentres | None:
        """What crops are centred on; None where they may lie anywhere."""
        return self._crop.centres if self._crop else None

    @property
    def only_crops(self) -> bool:
        """Whether samples are cut, and nothing else is done to them."""
        return bool(self._crop) and not (self._translations or self._symmetries or self.vectors)

    def extents(self, spatial: Sequence[int]) -> tuple[int, int, int]:
        """Return the extents (D, H, W) of an augmented sample, which are the same in every epoch."""
        if self._crop:
            return self._crop.size
        depth, height, width = spatial
        return depth, height, width

    def check(self, boundary: Boundary, fields: Sequence[str]) -> None:
        """Refuse what a data set of this boundary and these fields cannot give."""
        if self._translations and boundary is not Boundary.PERIODIC:
            raise UsageError(
                "Translations",
                found=f"boundary {str(boundary)!r}",
                expected="a periodic sample, which goes on where it ends",
                remedy='say boundary="periodic" if the samples are so, or use RandomCrop',
            )
        named = [*self.vectors, *((self.centres.field,) if self.centres else ())]
        unknown = [name for name in named if name not in fields]
        if unknown:
            raise UsageError("Augment", found=f"field {unknown[0]!r}", expected=f"one of {list(fields)}")

    def place(
        self, spatial: Sequence[int], *, epoch: int, index: int, repeat: int = 0, found: ClassVoxels | None = None
    ) -> Placement:
        """Return where the augmented sample lies in a stored one of extents `spatial` (D, H, W).

        Parameters
        ----------
        spatial
            Extents of the stored sample.
        epoch, index
            Numbers of 0 or more.
        repeat
            How often the sample was drawn before in the epoch.
        found
            Its classes' voxels, where crops are centred on them.

        Raises
        ------
        UsageError
            When the sample is too small for the crop, or its axes cannot be exchanged.
        """
        draws = Draws(self.seed, epoch, index, *((repeat, _REPEATS) if repeat else ()))
        origin = self._translations.origin(spatial, draws) if self._translations else (0, 0, 0)
        start: Sequence[int] = (0, 0, 0)
        if self._crop:
            centre = found.draw(self._crop.centres, draws) if found and self._crop.centres else None
            if centre is not None:
                centre = tuple((c - o) % n for c, o, n in zip(centre, origin, spatial, strict=True))
            start = self._crop.start(spatial, draws, centre)
        extents = self.extents(spatial)
        window = Box.whole(extents).shift(origin).shift(start)
        orientation = Orientation()
        for symmetry in self._symmetries:
            choices = symmetry.orientations(extents)
            orientation = choices[draws.below(len(choices))].after(orientation)
        return Placement(window, orientation)

    def key(self, index: int) -> int:
        """Return 64 bits of a sample: which voxels of its classes are remembered follows from them."""
        return Draws(self.seed, index, 0, _CENTRES).below(2**64)

    def __repr__(self) -> str:
        vectors = [f"vectors={self.vectors}"] if self.vectors else []
        return f"Augment({', '.join([*map(repr, self.parts), f'seed={self.seed}', *vectors])})"


def _only(kind: type[P], parts: Sequence[Part]) -> P | None:
    """Return the one part of a kind, or None."""
    found = [part for part in parts if isinstance(part, kind)]
    if len(found) > 1:
        raise UsageError("Augment", found=f"{len(found)} of {kind.__name__}", expected="one")
    return found[0] if found else None


def _channels(field: str, channels: Sequence[int]) -> tuple[int, int, int]:
    """Return the channels of a vector."""
    given = tuple(channels)
    if len(given) != 3 or len(set(given)) < 3 or not all(map(_is_count, given)):
        raise UsageError(f"vectors[{field!r}]", found=repr(channels), expected="three channels, along d, h and w")
    return given[0], given[1], given[2]


def _is_count(number: Any) -> bool:
    """Tell whether a caller's number is a whole one, of 0 or more."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
