"""The spatially-parallel engine: ordinary networks on volumes that are cut over the ranks of a sample group.

`shard` is the front; `explain` prints what it will do, `check` whether it gives what the whole network gives.
`docs/engine.md` lists the layers and the conventions.
"""

from voxload.engine import losses
from voxload.engine.blocks import Blocks
from voxload.engine.check import check
from voxload.engine.checked import Checked
from voxload.engine.exchange.alltoall import AllToAll
from voxload.engine.exchange.joint import Joint
from voxload.engine.exchange.loopback import Loopback
from voxload.engine.exchange.none import NoExchange
from voxload.engine.exchange.p2p import P2P
from voxload.engine.exchange.protocol import Exchange, Pending
from voxload.engine.explain import explain
from voxload.engine.meshes import from_dtensor, grid_of, mesh_of, to_dtensor
from voxload.engine.methods import shard_methods, unshard
from voxload.engine.shard import shard
from voxload.engine.sharded import Sharded
from voxload.engine.total import all_sum

__all__ = [
    "P2P",
    "AllToAll",
    "Blocks",
    "Checked",
    "Exchange",
    "Joint",
    "Loopback",
    "NoExchange",
    "Pending",
    "Sharded",
    "all_sum",
    "check",
    "explain",
    "from_dtensor",
    "grid_of",
    "losses",
    "mesh_of",
    "shard",
    "shard_methods",
    "to_dtensor",
    "unshard",
]
