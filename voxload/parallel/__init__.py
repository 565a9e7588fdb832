"""Training beyond one trainer's ordinary step: optimisers that send few bits.

In come ordinary networks and torch's process groups on a process grid; what goes out are trained weights. Begin with
`lion`: `Lion` is its optimiser.
"""

from voxload.parallel.lion.optimiser import Lion

__all__ = ["Lion"]
