"""Policies: who keeps which block, found by name.

In come the orders of an epoch and those behind it, and what the tiers hold; out comes a Placement. Read protocol
first; a new policy is a class in a file of its own, entered below, and builder makes placements for those that decide
access by access.
"""

from __future__ import annotations

from voxload.errors import UsageError
from voxload.prefetch.policies.baselines import FirstTouch, Lru, Nopfs, Shards, Staging
from voxload.prefetch.policies.clairvoyant import Clairvoyant
from voxload.prefetch.policies.protocol import Policy, State

__all__ = ["NAMES", "Policy", "State", "named"]

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
