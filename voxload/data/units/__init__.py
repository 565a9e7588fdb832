"""Units: parts of stored volumes that are kept by themselves, and the keys under which they are.

Read unit first, then keyed, which knows when what was read may be kept. Doors: unit, keyed.
"""
