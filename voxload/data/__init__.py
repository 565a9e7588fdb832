"""VolumeDataset: what the user named becomes this rank's blocks.

In comes a catalogue, a glob, a list or a URL with a grid, a halo and an augmentation, out come arrays and tensors of
one sample. Read dataset first; lists is how samples are found, units what is
kept of them. Doors: dataset, item_transforms.
"""
