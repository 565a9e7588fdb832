"""Zarr arrays of format 2 and 3, sharded or not: chunks read natively, the unusual through zarr-python.

A Location comes in, a reader goes out: native where the codecs allow (route says whether), else through zarr-python
(reader). Read format first; it imports the others late, for zarr-python takes long to import. chunkindex says which
chunks are there, and chunkfiles, openshards and remotechunks bring them. convert imports native, reader and route.
"""

from voxload.readers.zarr.format import ZarrFormat as ZarrFormat
