"""Views: readers of a part of what others read, or of several of them as one.

In come open readers and a location that names a window, samples and time steps, or further datasets; out comes a
reader of that. Doors: located. Read part first.
"""
