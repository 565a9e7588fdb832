"""The oracle: what a training step will take on a number of ranks, before any of them runs.

`trace` runs the engine's own step of one rank on tensors without data, and has every operation, message and allocation
of it.
"""
