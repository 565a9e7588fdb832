"""What is run: known to the tests without importing the frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINED = ("ddp", "fsdp2", "spatial", "accelerate_ddp", "lightning_ddp")
"""Examples that train with either loader; Lightning leaves its process group behind, and comes last."""

DEALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "split": {"split_batches": True},
    "uneven": {"even_batches": False},
    "seedable": {"use_seedable_sampler": True},
}
"""How Accelerate may deal batches to processes."""
