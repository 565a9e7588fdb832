"""Zoo: all networks that are compared."""

from __future__ import annotations

from bench.networking.diffusing import DIFFUSING
from bench.networking.monai import MONAI
from bench.networking.nnunet import NNUNET
from bench.networking.operators import OPERATORS
from bench.networking.own import OWN
from bench.networking.segmenting import SEGMENTING
from bench.networking.video import TORCHVISION

NETWORKS = (*OWN, *MONAI, *NNUNET, *TORCHVISION, *SEGMENTING, *OPERATORS, *DIFFUSING)
"""In the order of the table."""
