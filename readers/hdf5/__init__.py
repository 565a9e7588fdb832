"""HDF5 files: libhdf5 is asked for metadata, and its threads for nothing else where that can be helped.

A Location comes in, a reader goes out: native where the storage allows (route says whether), else through h5py
(reader, decoded, virtual). Read format first. convert imports checks, chunktable, decoded, file, quirks, reader,
source and tablecache.
"""

from voxload.readers.hdf5.format import Hdf5Format as Hdf5Format
from voxload.readers.hdf5.reader import Hdf5Reader as Hdf5Reader
