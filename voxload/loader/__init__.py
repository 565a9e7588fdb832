"""The drop-in DataLoader: torch's loader, whose blocks are read ahead by threads or fetched from tiers and peers.

In come torch's arguments over a VolumeDataset; out come batches in torch's order, on the host or a device. A batch
passes order (which samples), reading or caching (from storage, tiers or peers into a staging slot), device (to it),
collation (to the loop). Others import dataloader, cache, sampler and stats; accelerate and prometheus serve those
frameworks. Read dataloader first, then pipeline.
"""
