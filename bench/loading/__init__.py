"""The parts of bench/loader.py: cases, contenders, the process of one run, goals, and the tables."""
