"""Zarr arrays of format 2 and 3, sharded or not, read through zarr-python."""

from voxload.readers.zarr.format import ZarrFormat as ZarrFormat
from voxload.readers.zarr.reader import ZarrReader as ZarrReader
