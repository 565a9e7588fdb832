"""Real input for the demo: universes whose power spectrum follows from their parameters.

In comes a seed, out come raw files (universes) or labelled samples with a catalogue (structures). Read universes
first; density is the one file that stands on colossus and powerbox.
"""
