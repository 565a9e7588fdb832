"""Images of medicine: NIfTI, NRRD and MetaImage, whose headers say where a voxel lies in the patient.

`images` has what they share: the case that an image belongs to, and whether image and label lie at one place. Read
`nifti` first.
"""
