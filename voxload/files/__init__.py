"""Files on this machine: opened, read within limits, and written so that they appear whole.

In comes a path, out come bytes, tables, pictures and finished files; stands on errors, geometry, text and units alone.
All its modules are doors: atomic and regular (begin there), parquet, pictures, private, limits, names, memory_left.
"""
