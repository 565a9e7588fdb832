"""``voxload bench``: how fast a storage feeds a network.

One command a file; all stand on voxload.benchmark. Read run first.
"""
