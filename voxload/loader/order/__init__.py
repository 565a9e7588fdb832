"""Order: which samples an epoch has, and where in it a loop is, so that another job can go on there.

In comes the loader with its sampler; out come indices, counted, and a state of less than 1 KiB. Others import cursor
and repeats. Read cursor first, then orders.
"""
