"""Contender: a way of loading, by the name that the command line gives it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

import voxload
from voxload.errors import UsageError
from voxload.loader.sampler import GroupSampler
from voxload.prefetch import policies

TORCH, PLAIN = "torch", "plain"
_HALF, _TRAIN = "half", "train"


@dataclass(frozen=True, slots=True)
class Contender:
    """``torch``, ``plain`` (voxload without a cache), or a policy.

    Behind a policy, ``/half`` gives it tiers of half the data set, and ``/train`` computes longer in each step.
    """

    name: str
    policy: str | None
    """None: no cache."""
    is_half: bool
    is_train: bool

    @classmethod
    def parse(cls, name: str) -> Contender:
        """Return the contender of a name; raises UsageError where there is none."""
        base, *rest = name.split("/")
        is_known = base in (TORCH, PLAIN, *policies.NAMES) and set(rest) <= {_HALF, _TRAIN}
        if not is_known or (base in (TORCH, PLAIN) and _HALF in rest):
            raise UsageError(
                "contender",
                found=repr(name),
                expected=f"{TORCH}, {PLAIN} or one of {', '.join(policies.NAMES)}; then /{_HALF}, /{_TRAIN}",
            )
        return cls(name, None if base in (TORCH, PLAIN) else base, _HALF in rest, _TRAIN in rest)

    @property
    def is_torch(self) -> bool:
        """Whether torch's own loader reads, with processes."""
        return self.name.split("/")[0] == TORCH

    def rank_blocks(self, samples: int, groups: int) -> int:
        """Return how many blocks each rank has room for."""
        if self.policy is None:
            return 0
        together = samples // 2 if self.is_half else samples
        return -(-together // groups)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What all contenders have in common."""

    batch: int
    epochs: int
    threads: int
    """Threads, or worker processes, of each rank."""
    seed: int


def build(contender: Contender, data: voxload.VolumeDataset, recipe: Recipe, *, memory: int) -> Iterable[Any]:
    """Return a loader, ready for its first epoch; `memory` is that of the node."""
    if contender.is_torch:
        sampler = GroupSampler(data, data.grid, shuffle=True, seed=recipe.seed)
        # Workers that stay keep their files open: the best that torch can do.
        return torch.utils.data.DataLoader(
            data,
            batch_size=recipe.batch,
            sampler=sampler,
            num_workers=recipe.threads,
            persistent_workers=True,
        )
    cache = None
    if contender.policy is not None:
        cache = voxload.Cache(memory=memory, policy=contender.policy, epochs=recipe.epochs)
    return voxload.DataLoader(
        data,
        batch_size=recipe.batch,
        shuffle=True,
        num_workers=recipe.threads,
        generator=torch.Generator().manual_seed(recipe.seed),
        cache=cache,
    )
