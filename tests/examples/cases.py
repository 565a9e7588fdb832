"""What is run: known to the tests without importing the frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
FRAMES = EXAMPLES / "frameworks"
LOADERS = {
    "ddp": ("torch", "voxload"),
    "fsdp2": ("torch", "voxload"),
    "spatial": ("torch", "voxload"),
    "accelerate_ddp": ("torch", "voxload"),
    "lightning_ddp": ("torch", "voxload"),
    "monai_transforms": ("monai", "voxload"),
}
"""Examples, and the loaders that each trains with to the same losses."""

LONG = ("ddp", "fsdp2", "accelerate_ddp", "accelerate", "lightning_ddp", "lightning", "monai_transforms", "monai")
"""What the short run leaves out: to import what these need takes longer than all else."""

PERSONAS = {"cfd": 0.3, "cosmology": 0.6, "medicine": 0.6, "microscopy": 0.6, "video": 0.3, "weather": 0.4}
"""Folders whose README is run, and what is left of the first epoch's loss at most."""

FRAMEWORKS = ("accelerate", "lightning", "monai")
"""What is looked at besides the examples: ``rank_NAME.py``."""

ALONE = ("monai_transforms", "monai")
"""What one process does: to import MONAI takes the others long, too."""

DEALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "split": {"split_batches": True},
    "uneven": {"even_batches": False},
    "seedable": {"use_seedable_sampler": True},
}
"""How Accelerate may deal batches to processes."""
