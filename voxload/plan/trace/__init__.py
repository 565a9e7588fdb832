"""A training step of one rank, traced without voxels: its operations, messages and allocations.

A network, a grid and a shape come in, a StepTrace goes out. Read operation first, then step, which traces, and tracer,
which sees.
"""
