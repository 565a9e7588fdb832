"""The parts of bench/readers.py: cases, contenders, the clock, and the tables."""
