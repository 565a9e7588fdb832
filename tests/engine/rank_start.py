"""What scripts of ranks share: how the ranks meet, and what a call is refused with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from voxload.errors import UsageError


def meet(rank: int, ranks: int, folder: Path) -> None:
    """Initialise torch.distributed on the host, by a file in `folder`."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks, timeout=timedelta(seconds=300)
    )


def refused(call: Callable[[], object]) -> str:
    """Return what a call is refused with."""
    try:
        call()
    except UsageError as error:
        return str(error)
    return "nothing"
