"""Records that hold a cube each.

`tfrecord` finds the records of a file, `examples` the features of a record, `cosmoflow` says what they mean. Read
`tfrecord` first.
"""
