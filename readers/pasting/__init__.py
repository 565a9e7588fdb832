"""Pasting: the one pass that takes voxels from decoded bytes to where they belong.

A plan of parts comes in (pasteplan), filled arrays go out. Read pasteplan first, then kernels. Other rooms import
of pasteplan Place; nothing here knows of files.
"""
