"""Delivery of blocks: the drop-in DataLoader and what it is made of."""
