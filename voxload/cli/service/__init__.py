"""``voxload serve``: the node's service, and what is said to one that runs."""
