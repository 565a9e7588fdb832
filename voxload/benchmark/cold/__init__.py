"""Cold runs: the page cache of each node made to forget a data set, and looked at.

In come the files of a data set and what is asked for, out goes what was done and seen. Read coldness.py first.
"""
