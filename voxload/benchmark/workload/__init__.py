"""Workloads: what a run is told, from the command line or a published preset, and the computing that is emulated.

Comes in as options, goes out as a `Workload` that travels to ranks as JSON. Read workload.py first.
"""
