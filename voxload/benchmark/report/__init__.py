"""The report of results: one page that needs no network, and its plots as pictures."""
