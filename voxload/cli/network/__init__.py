"""``voxload train``, ``infer`` and ``demo``: the commands that run a network, and what is shown of a training run."""
