"""Where voxels lie in the bytes of a file, whatever format says so.

One behind the other (`flat`), in a compressed stream (`streams`, `inflater`), or as numbers that stand for others
(`stored`).

Read `flat` first.
"""
