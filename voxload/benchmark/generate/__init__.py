"""Generated data sets: samples of any size, format, chunks and codec whose voxels can be verified.

In comes a `DatasetPlan`, out go samples with a catalogue and the plan beside it. Read plan.py first; others import
plan, storage, generate, generated and worker_pool.
"""
