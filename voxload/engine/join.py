"""Join: how a convolution joins a halo with its block."""

from __future__ import annotations

import enum


class Join(enum.Enum):
    """How a convolution joins a halo with its block."""

    PAD = "pad"
    """One padded copy of the block, after all messages have arrived."""
    PATCH = "patch"
    """Outputs at the faces are computed again."""
    ADD = "add"
    """What the halo contributes is added to outputs at the faces."""
