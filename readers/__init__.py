"""Readers: one storage format a file or folder, all with one contract.

A Location comes in, voxels of a box go out, in an array that is given. Read protocol first, then registry. Other
rooms import what stands here: protocol and axes (the contract), registry, handles, requests and window (opening and
asking), generation and store (what is stored where), faults, cfpacking and foreign (what is refused, and how that is
said), scratch and team (memory and threads, which others use too); of chunks, checksums, checksumfile,
sealedparquet and storedchunks; of storage, file, locality and traversal; of pasting, kernels and pasteplan. A box
passes flat, hdf5 or zarr (where its bytes lie; xarrays, where there are none), storage or remote (which bring them),
chunks, decode and pasting.

>>> from voxload.readers import Location, open_reader
>>> reader = open_reader(Location("universe.h5", dataset="full"))     # doctest: +SKIP
>>> reader.describe().shape                                            # doctest: +SKIP
(4, 512, 512, 512)
"""

from voxload.readers.chunks.chunkcache import CacheFigures as CacheFigures
from voxload.readers.chunks.chunkcache import ChunkCache as ChunkCache
from voxload.readers.chunks.chunkcache import chunk_cache as chunk_cache
from voxload.readers.chunks.chunkcache import forget_chunks as forget_chunks
from voxload.readers.chunks.chunkcache import set_chunk_cache as set_chunk_cache
from voxload.readers.chunks.chunkcache import set_kept_chunks as set_kept_chunks
from voxload.readers.handles import Handles as Handles
from voxload.readers.protocol import Format as Format
from voxload.readers.protocol import Location as Location
from voxload.readers.protocol import Missing as Missing
from voxload.readers.protocol import ReadCost as ReadCost
from voxload.readers.protocol import Reader as Reader
from voxload.readers.protocol import Volume as Volume
from voxload.readers.protocol import VolumeInfo as VolumeInfo
from voxload.readers.registry import find_format as find_format
from voxload.readers.registry import holds as holds
from voxload.readers.registry import is_crowded as is_crowded
from voxload.readers.registry import open_reader as open_reader
from voxload.readers.requests import ManyReader as ManyReader
from voxload.readers.requests import Request as Request
from voxload.readers.requests import block_cost as block_cost
from voxload.readers.requests import read_block as read_block
from voxload.readers.requests import read_many as read_many
from voxload.readers.requests import read_plane as read_plane
from voxload.readers.storage.file import set_direct_reads as set_direct_reads
from voxload.readers.team import set_threads as set_threads
