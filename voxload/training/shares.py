"""Shares: which part of a node's room the training samples have, and which the held-out ones; pure."""

from __future__ import annotations

import os
from dataclasses import replace

from voxload.loader.cache import Cache

TRAINING, VALIDATION = "training", "validation"
"""Names of the two loaders, and of their folders on disk: a disk tier's capacity is one of its folder."""


def shared_out(cache: Cache, *, training: int, validation: int, epochs: int) -> tuple[Cache, Cache]:
    """Divide `cache` by numbers of samples: all are read once an epoch, so a byte is worth the same to each.

    Parameters
    ----------
    cache
        The room of a node.
    training, validation
        Samples that are trained on, and that are held out.
    epochs
        Passes over both.

    Returns
    -------
    The caches of the training and of the validation loader, in sum no larger than `cache`.
    """
    whole = training + validation
    held_out = _part(cache, VALIDATION, (validation, whole), epochs)
    return _part(cache, TRAINING, (training, whole), epochs), held_out


def _part(cache: Cache, name: str, share: tuple[int, int], epochs: int) -> Cache:
    """Return so many parts of so many, rounded down."""
    parts, whole = share
    return replace(
        cache,
        memory=cache.memory_bytes * parts // whole,
        disk=None if cache.disk is None else os.path.join(cache.disk, name),  # noqa: PTH118 - travels as text
        disk_size=cache.disk_bytes * parts // whole,
        epochs=epochs,
    )
