"""The I/O benchmark: how fast a storage with a layout feeds a network on so many ranks, and what would help."""
