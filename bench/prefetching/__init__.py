"""The parts of bench/prefetch.py: its ranks, what the storage says, the forecast, and the picture."""
