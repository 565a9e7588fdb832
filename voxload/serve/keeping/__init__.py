"""What a service keeps, and for whom: the planner's instructions carried out on memory, disk and storage.

In come what clients say, out go answers and blocks in memory. Read keeper first: it runs in the event loop's thread.
levels is what its team of threads does; book and pins remember what blocks are and which of them stay.
"""
