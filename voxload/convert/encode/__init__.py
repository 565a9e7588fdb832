"""From tiles of a raw cube to encoded chunks.

In comes what a source's `open` gives, out come compressed bytes of chunks with the statistics of their voxels; all of
it without the interpreter lock. Read `staging` first, then `encoding`.
"""
