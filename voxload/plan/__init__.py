"""The oracle: which parallelism, on how many ranks, and what a training step will take, before any of them runs.

`trace` runs the engine's own step of one rank on tensors without data, and has every operation, message and allocation
of it; `costs` says what these take on a machine, `platform` what a machine is, `calibration` measures one; `forecast`
puts setups of ranks in order, `search` chooses for every layer, and `validation` runs what was foretold. What was
chosen is a `Plan`, which `load` reads; `checkpoint_modules` does what it says of memory.
"""

from voxload.plan.checkpoints import checkpoint_modules
from voxload.plan.document import Plan, load

__all__ = ["Plan", "checkpoint_modules", "load"]
