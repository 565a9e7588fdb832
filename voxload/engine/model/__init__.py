"""The user's network as an object of torch: its volumes, its settings, what its forward reads.

A module comes in; shapes that it takes, a copy without weights and guards against later changes go out. Nothing here
knows of ranks. Read meta_runs first.
"""
