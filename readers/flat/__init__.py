"""Flat storage: arrays that lie in one piece, as they would in memory.

A file comes in, boxes of it go out: mapped where the file system is this node's, else by few long spans. Read
arrayfile first. contiguous also serves contiguous datasets of HDF5 files.
"""
