"""Layouts of cosmological simulations.

The universes of CosmoFlow in HDF5, the grids of PyCOLA, Quijote and CAMELS in npy files, the snapshots of Nyx, and
particles, which are refused with a word on gridding.

Read `cosmoflow` first.
"""
