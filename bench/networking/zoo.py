"""Zoo: all networks that are compared."""

from __future__ import annotations

from bench.networking.monai import MONAI
from bench.networking.own import OWN

NETWORKS = (*OWN, *MONAI)
"""In the order of the table."""
