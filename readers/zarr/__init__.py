"""Zarr arrays of format 2 and 3, sharded or not: chunks read natively, the unusual through zarr-python."""

from voxload.readers.zarr.format import ZarrFormat as ZarrFormat
