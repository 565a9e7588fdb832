"""The I/O benchmark: how fast a storage with a layout feeds a network on so many ranks, and what would help.

In come a data set (generate/ makes one) and a workload (workload/); run/ carries it out on ranks, each with a
loader (loaders/), with the page cache emptied (cold/) and what happens counted (measure/); results/ and report/ tell
people of the result. dlio/ are plug-ins for the DLIO benchmark. Read run/job.py first.
"""
