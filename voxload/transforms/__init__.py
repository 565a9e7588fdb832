"""Transforms of a batch's volumes: casts and normalisations that run where the batch is.

They act voxel by voxel, so a block is transformed as the whole would be, and a chain of them is one pass over it.
Read steps first (what there is), then fused (how it is run).
"""

from voxload.transforms.chain import Transform as Transform
from voxload.transforms.compose import ChannelsLast as ChannelsLast
from voxload.transforms.compose import Compose as Compose
from voxload.transforms.from_catalog import standardize_by as standardize_by
from voxload.transforms.steps import Cast as Cast
from voxload.transforms.steps import Clip as Clip
from voxload.transforms.steps import Log1p as Log1p
from voxload.transforms.steps import Scale as Scale
from voxload.transforms.steps import Standardize as Standardize

__all__ = ["Cast", "ChannelsLast", "Clip", "Compose", "Log1p", "Scale", "Standardize", "Transform", "standardize_by"]
