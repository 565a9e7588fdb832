"""Validation: plans that this machine can hold, run as they are, beside what was said of them. Read run first."""
