"""Notes: what the ranks found of each sample, brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.errors import InternalError
from voxload.grid import ProcessGrid


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
    gathered: list[Any] = [dict(noted)]
    if dist.is_initialized():
        gathered = [None] * grid.world_size
        dist.all_gather_object(gathered, dict(noted))
    found: dict[str, list[Tensor]] = {sample: [] for sample in samples}
    for rank in gathered:
        for sample, note in rank.items():
            found[sample].append(note)
    odd = [sample for sample, notes in found.items() if len(notes) != grid.group_size]
    if odd:
        raise InternalError(
            f"sample {odd[0]!r}", found=f"noted by {len(found[odd[0]])} ranks", expected=f"by {grid.group_size}"
        )
    return {sample: torch.stack(notes).sum(0) for sample, notes in found.items()}
