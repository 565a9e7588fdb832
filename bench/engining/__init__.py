"""The parts of bench/engine.py: processes, what they run, the four claims, and the tables."""
