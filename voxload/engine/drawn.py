"""Drawn: the random numbers of this process, and its settings, put back after a network's forward was only tried."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(slots=True)
class Drawn:
    """What was drawn."""

    others: bool = False
    """Whether numbers of Python or numpy were, which differ from rank to rank."""


@contextmanager
def numbers_kept() -> Iterator[Drawn]:
    """Put back the random numbers of torch on the host, of Python and of numpy; tell afterwards what was drawn."""
    drawn = Drawn()
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - that of networks that use it
    try:
        with torch.random.fork_rng(devices=[]):
            yield drawn
    finally:
        # The text of numpy's leaves out most of its numbers, and has how many of them were drawn.
        drawn.others = (python, repr(numpy)) != (random.getstate(), repr(np.random.get_state()))  # noqa: NPY002 - as above
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002 - as above


@contextmanager
def slow_paths() -> Iterator[None]:
    """Let torch's transformers take no fast path, which is for tensors of its own class that have values."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
