"""The formats that volumes are stored in: one a file.

In come encoded chunks, out comes a volume that every library of the format opens. The contract is `protocol`; a new
format is a file beside `zarr`, and an entry in `STORAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from voxload.convert.manifest import Manifest
from voxload.convert.storage.hdf5 import Hdf5Storage
from voxload.convert.storage.protocol import VolumeStorage
from voxload.convert.storage.zarr import ZarrStorage

STORAGES: Mapping[str, Callable[[Manifest], VolumeStorage]] = {"zarr": ZarrStorage, "hdf5": Hdf5Storage}
"""What stores volumes in a format, by the format's name in a manifest."""
