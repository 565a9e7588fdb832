"""Exchange: tensors of two ranks of equal coordinates, of two trainers, travel both ways; by gloo, through the host."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from voxload.errors import UsageError

_DIGEST = 32
_groups: Any = dist.distributed_c10d  # groups of a store of one's own are made by its classes


def swapped(
    tensors: Sequence[Tensor], store: Any, name: str, *, is_first: bool, patience: float
) -> list[Tensor] | None:
    """Return what the other rank has in the places of `tensors`, on the host; None where it did not answer in time.

    Parameters
    ----------
    tensors
        This rank's; they stay as they are.
    store
        torch's, that both reach.
    name
        Of this exchange, the same on both and of no other one.
    is_first
        Whether this is the first of the two.
    patience
        Seconds that each part of it may take.

    Raises
    ------
    UsageError
        On both, when the other has tensors of other shapes or types.
    """
    place = 0 if is_first else 1
    described = repr([(tuple(each.shape), str(each.dtype)) for each in tensors])
    digest = torch.frombuffer(bytearray(hashlib.sha256(described.encode()).digest()), dtype=torch.uint8)
    try:
        prefixed = _groups.PrefixStore(name, store)
        group = _groups.ProcessGroupGloo(prefixed, place, 2, timeout=timedelta(seconds=patience))
        theirs = _both(group, digest)[1 - place]
        if not torch.equal(theirs, digest):
            raise UsageError(
                "tournament", found="a trainer of another network", expected="the same shapes and types in all of them"
            )
        found = [_other(group, each, place) for each in tensors]
        _both(group, torch.zeros(1, dtype=torch.uint8))  # the other one has everything, too
    except RuntimeError:  # gloo's: nobody came, or it went away
        return None
    return found


def _other(group: Any, tensor: Tensor, place: int) -> Tensor:
    own = tensor.detach().cpu().contiguous()
    # As bytes: not every type travels.
    flat = own.reshape(-1).view(torch.uint8)
    return _both(group, flat)[1 - place].view(own.dtype).view(own.shape)


def _both(group: Any, own: Tensor) -> list[Tensor]:
    found = [torch.empty_like(own) for _ in range(2)]
    group.allgather([found], [own]).wait()
    return found
