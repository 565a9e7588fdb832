"""Split forms: what each layer of torch does on a block, one kind a file.

A layer comes in; its plan (integers) and the layer as it runs on a block go out. Read form first, the contract;
`supported` lists the layers that have one. To add a layer, write its form and name it there.
"""
