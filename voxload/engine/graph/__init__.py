"""From an ordinary network to a program of split operations: the way of networks that can be traced.

Forward is traced (trace), every operation is given its split form or refused (classify, program), the moves are
planned for one shape (network_plan), and the program is written back into forwards of the model's own modules
(codegen). `sharded` is the network that results. Read sharded first.
"""
