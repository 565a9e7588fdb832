"""What functions of torch do on blocks: one rule for each kind, found by the function.

A call and the cuts of its tensors come in, a ruling goes out: the cuts it takes and gives, and the action on blocks.
Read pointwise first. To add a function, write its rule beside its kin and name it in the table.
"""
