"""Plug-ins for the DLIO benchmark: voxload as its data loader, or as its reader of files.

DLIO takes both by dotted path, and finds the workloads of `workload/` where it is told to search::

    dlio_benchmark hydra.searchpath=[pkg://voxload.benchmark.dlio] workload=unet3d_voxload

``voxload.benchmark.dlio.loader.VoxloadDataLoader`` stands in place of DLIO's loader,
``voxload.benchmark.dlio.reader.VoxloadReader`` reads samples for DLIO's own. Only these two modules import DLIO.
"""
