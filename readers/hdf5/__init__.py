"""HDF5 files, read through h5py."""

from voxload.readers.hdf5.format import Hdf5Format as Hdf5Format
from voxload.readers.hdf5.reader import Hdf5Reader as Hdf5Reader
