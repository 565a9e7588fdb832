"""Data loading and I/O for 3-D samples too large for one GPU.

Names are loaded when they are first used: converting or inspecting files does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxload import augment as augment
    from voxload import engine as engine
    from voxload import models as models
    from voxload import parallel as parallel
    from voxload import transforms as transforms
    from voxload.catalog.table import Catalog as Catalog
    from voxload.data.dataset import VolumeDataset as VolumeDataset
    from voxload.data.item_transforms import AsDict as AsDict
    from voxload.data.lists.patches import Patches as Patches
    from voxload.data.lists.window import Window as Window
    from voxload.geometry import Box as Box
    from voxload.geometry import Halo as Halo
    from voxload.grid import ProcessGrid as ProcessGrid
    from voxload.loader.cache import Cache as Cache
    from voxload.loader.dataloader import DataLoader as DataLoader
    from voxload.pictures.show import show as show

_HOMES = {
    "AsDict": "voxload.data.item_transforms",
    "Box": "voxload.geometry",
    "Cache": "voxload.loader.cache",
    "Catalog": "voxload.catalog.table",
    "DataLoader": "voxload.loader.dataloader",
    "Halo": "voxload.geometry",
    "Patches": "voxload.data.lists.patches",
    "ProcessGrid": "voxload.grid",
    "VolumeDataset": "voxload.data.dataset",
    "Window": "voxload.data.lists.window",
    "show": "voxload.pictures.show",
}
"""The module of each public class or function."""
_MODULES = ("augment", "engine", "models", "parallel", "transforms")
"""Public modules."""

__all__ = [
    "AsDict",
    "Box",
    "Cache",
    "Catalog",
    "DataLoader",
    "Halo",
    "Patches",
    "ProcessGrid",
    "VolumeDataset",
    "Window",
    "augment",
    "engine",
    "models",
    "parallel",
    "show",
    "transforms",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"voxload.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'voxload' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
