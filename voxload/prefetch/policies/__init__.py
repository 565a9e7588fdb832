"""Policies: who keeps which block; one a file, found by name."""

from __future__ import annotations

from voxload.errors import UsageError
from voxload.prefetch.policies.clairvoyant import Clairvoyant, prepare
from voxload.prefetch.policies.first_touch import FirstTouch
from voxload.prefetch.policies.lru import Lru
from voxload.prefetch.policies.nopfs import Nopfs
from voxload.prefetch.policies.protocol import Policy, State
from voxload.prefetch.policies.shards import Shards
from voxload.prefetch.policies.staging import Staging

__all__ = ["NAMES", "Policy", "State", "named", "prepare"]

_POLICIES: tuple[Policy, ...] = (
    Clairvoyant(),
    Staging(),
    Staging(name="none"),
    Lru(),
    Shards(),
    FirstTouch(),
    Nopfs(),
)
NAMES = tuple(policy.name for policy in _POLICIES)
"""All policies; the first one is the default."""


def named(name: str) -> Policy:
    """Return a policy.

    Raises
    ------
    UsageError
        No policy has this name.
    """
    for policy in _POLICIES:
        if policy.name == name:
            return policy
    raise UsageError("policy", found=repr(name), expected=f"one of {', '.join(NAMES)}")
