"""Images of medicine: NIfTI, NRRD, MetaImage and DICOM, whose headers say where a voxel lies in the patient.

`images` has what they share: the case that an image belongs to, and whether image and label lie at one place. Read
`nifti` first. DICOM has a file for each slice: `headers` and `slices` (one file), `series` (the volume that they make),
`frames` (their pixels), `dicom` (the format).
"""
