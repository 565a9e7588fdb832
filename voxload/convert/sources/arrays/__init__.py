"""Containers of arrays that any field uses: npy and npz, HDF5, Zarr, FITS, ASDF, and binary without a header.

The HDF5 layouts of the other rooms stand on `hdf5cube` and `hdf5targets`. Read `npy` first.
"""
