"""Pictures of volumes: the three middle planes on one colour scale, with the blocks, halos and chunks that cut them.

In comes a volume, an array or planes that somebody read, out goes a figure of matplotlib's, which is imported with the
first one. Read slices.py first: it draws. scale.py has the colours, planes.py reads of any array what is drawn, show.py
is what `voxload.show` is.
"""
