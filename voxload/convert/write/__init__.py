"""From encoded chunks to complete volumes and their catalogue, also over a kill.

In comes a `VolumePlan`, out comes a volume under its final name, its checksums, and a row for each of its samples.
Read `pipeline` first, then `writer`. Other rooms import `writer` and `lock`.
"""
