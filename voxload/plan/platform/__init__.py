"""Platforms: machines as a plan needs to know them, read from the files that ``voxload simulate`` reads too.

Read platform first; files reads and writes them.
"""
