"""Pasting: the one pass that takes voxels from decoded bytes to where they belong.

A plan of parts comes in (pasteplan), filled arrays go out. Read pasteplan first, then kernels. Other rooms import
intrinsics (what numba lacks), of kernels the types of arguments, of pasteplan Place; nothing here knows of files.
"""
