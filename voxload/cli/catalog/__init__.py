"""``voxload catalog``: catalogues listed, merged, split and filtered.

One command a file, and the tables that they print.
"""
