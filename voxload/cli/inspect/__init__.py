"""``voxload info`` and ``voxload verify``: what is stored, what reading it costs, and whether it is sound.

Read info first; subject tells what a path is, which raw, stored or catalog then describe.
"""
