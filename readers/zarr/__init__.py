"""Zarr arrays of format 2 and 3, sharded or not: chunks read natively, the unusual through zarr-python."""

from voxload.readers.zarr.format import ZarrFormat as ZarrFormat
from voxload.readers.zarr.native import NativeZarrReader as NativeZarrReader
from voxload.readers.zarr.reader import ZarrReader as ZarrReader
