"""Files on this machine: opened, read within limits, and written so that they appear whole.

In comes a path, out come bytes, tables and finished files; stands on errors, text and units alone. All its modules
are doors: atomic and regular (begin there), parquet, private, limits, names, memory_left.
"""
