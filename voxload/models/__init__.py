"""The networks of the field, as ordinary torch modules.

They know nothing of the engine.
"""

from voxload.models.cosmoflow import CosmoFlow
from voxload.models.unet3d import UNet3D

__all__ = ["CosmoFlow", "UNet3D"]
