"""Fuzzing of the readers: damaged inputs by the thousand, read in processes that are watched."""
