"""The parts of bench/readers.py: samples, cases, contenders, the clock, and the tables."""
