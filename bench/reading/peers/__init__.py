"""Contenders, one a file: each gives `entries(job)`."""
