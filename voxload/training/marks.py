"""Marks of all held-out samples, from those that each rank noted of its own blocks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor


def averaged(noted: Mapping[int, Tensor], samples: int) -> Tensor:
    """Return each sample's mean marks over all ranks that noted some, ``(samples, marks)`` in float64, on every rank.

    A sample that several groups judged, because their shares are padded, so counts once.

    Parameters
    ----------
    noted
        This rank's marks by the index of the sample, each ``(marks,)``; one sample or more.
    samples
        Number of samples; each is noted by some rank.
    """
    width = len(next(iter(noted.values())))
    sums = torch.zeros((samples, width + 1), dtype=torch.float64)
    for index, row in noted.items():
        sums[index, :width] = row
        sums[index, width] = 1
    if dist.is_initialized():
        dist.all_reduce(sums)
    return sums[:, :width] / sums[:, width:]
