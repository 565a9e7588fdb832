"""Who writes the volumes: this process, the workers of a Dask cluster, or several tasks of an array.

In come planned volumes, out comes what was done with each. Read `local` first, which has the contract; Dask is
imported when a cluster is asked for.
"""
