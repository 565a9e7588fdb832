"""Notes: what the ranks found of each sample, brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from voxload.errors import InternalError
from voxload.grid import ProcessGrid
from voxload.telling import gathered

_DTYPES = {"float64": torch.float64, "int64": torch.int64}


@dataclass(frozen=True, slots=True)
class _Note:
    """What a rank noted of a sample, for the others."""

    dtype: str
    """One of `_DTYPES`."""
    shape: tuple[int, ...]
    values: tuple[int | float, ...]

    @classmethod
    def of(cls, note: Tensor) -> _Note:
        return cls(str(note.dtype).removeprefix("torch."), tuple(note.shape), tuple(note.reshape(-1).tolist()))

    def tensor(self) -> Tensor:
        """Return the note; raises InternalError where another rank sent none."""
        if self.dtype not in _DTYPES or prod(self.shape) != len(self.values) or min(self.shape, default=0) < 0:
            raise InternalError(
                "a note of another rank",
                found=f"{len(self.values)} numbers of {self.dtype}, shape {self.shape}",
                expected=f"as many as the shape has, of {' or '.join(_DTYPES)}",
            )
        return torch.tensor(self.values, dtype=_DTYPES[self.dtype]).reshape(self.shape)


def summed(noted: Mapping[str, Tensor], samples: Sequence[str], *, grid: ProcessGrid) -> dict[str, Tensor]:
    """Return the sum of what the ranks of a group noted of each sample, on every rank; all ranks call it together.

    Parameters
    ----------
    noted
        This rank's notes by sample id; every rank of a group has the same ids.
    samples
        All samples, each of which one group had.
    grid
        The ranks.

    Raises
    ------
    InternalError
        On every rank, when a sample was left out or noted twice.
    """
    own = {sample: _Note.of(note) for sample, note in noted.items()}
    found: dict[str, list[Tensor]] = {sample: [] for sample in samples}
    for rank, notes in enumerate(gathered(own, Mapping[str, _Note])):
        for sample, note in notes.items():
            if sample not in found:
                raise InternalError(f"rank {rank}", found=f"a note of sample {sample!r}", expected="one of this job's")
            found[sample].append(note.tensor())
    odd = [sample for sample, notes in found.items() if len(notes) != grid.group_size]
    if odd:
        raise InternalError(
            f"sample {odd[0]!r}", found=f"noted by {len(found[odd[0]])} ranks", expected=f"by {grid.group_size}"
        )
    return {sample: torch.stack(notes).sum(0) for sample, notes in found.items()}
