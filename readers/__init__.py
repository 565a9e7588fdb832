"""Readers: one storage format a file."""
