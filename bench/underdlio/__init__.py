"""Runs of the DLIO benchmark with voxload's plug-in and without."""
