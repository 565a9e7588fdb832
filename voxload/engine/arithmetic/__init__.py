"""Who owns, reads and sends which voxels: integers alone, the same on every rank.

Bounds of blocks and the settings of a layer come in, plans go out. Read blocks first, then axis_plan; windows has
what an output reads, layer_plan what one layer fetches.
"""
