"""Lists of samples: what the user named, and what of it makes a sample.

In comes a catalogue, a glob, a list or a URL, with a window in time and patches; out comes an indexed list of samples,
each with the places of its volumes. Nothing here reads a voxel. Read listing first; samples says what a list is. Doors:
listing, reading (how a file is read), samples, selection (some of a list, several as one), window and patches (public
classes).
"""
