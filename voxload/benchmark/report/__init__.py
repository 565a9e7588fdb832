"""The report of results: one page that needs no network, and its plots as pictures.

In come documents, out goes HTML. Read page.py first; others import page and result.
"""
