"""From a path to the volumes that will be stored.

In come a folder and options, out come `VolumePlan`s: cubes found and named, variables stacked, small samples packed
together, compression tried on a few boxes, tiles that fit the memory. No voxel is read but those of the trial. Read
`planning` first; `finding` is imported from outside.
"""
