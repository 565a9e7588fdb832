"""The parts of bench/prefetch.py: samples, contenders, ranks, what the storage says, the forecast, and the tables."""
