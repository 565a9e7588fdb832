"""Conversion of raw cubes into chunked, catalogued samples."""
