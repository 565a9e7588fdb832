"""``voxload plan``: how to split training over ranks, what it takes, and whether that is true on this machine."""
