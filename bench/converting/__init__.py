"""The parts of bench/convert.py."""
