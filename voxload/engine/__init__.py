"""The spatially-parallel engine: ordinary networks on volumes that are cut over the ranks of a sample group.

`shard` is the front; `explain` prints what it will do, `check` whether it gives what the whole network gives.
`docs/explanation/engine.md` lists the layers and the conventions. The door is this folder's own files: shard, explain,
check (checked, comparison), losses, methods, device_mesh, pipeline, pipeline_parts, sharded_weights, observe. A network
comes in; one of two ways takes it to blocks: `graph` (its forward is traced into a program of split `layers`) or, where
no trace can be kept or a plan cuts weights, `forward` (its own forward runs on blocks). Both stand on `run` (the
messages and sums of one rank), `exchange` (what carries them), `model` (a network as an object of torch) and
`arithmetic` (who needs which voxels: pure integers). Read shard first.
"""

from voxload.engine import losses
from voxload.engine.arithmetic.blocks import Blocks
from voxload.engine.arithmetic.split_plan import SplitPlan
from voxload.engine.check import check
from voxload.engine.checked import Checked
from voxload.engine.device_mesh import from_dtensor, grid_of, mesh_of, to_dtensor
from voxload.engine.exchange.distributed import P2P, AllToAll
from voxload.engine.exchange.in_process import Joint, Loopback, NoExchange
from voxload.engine.exchange.protocol import Exchange, Pending
from voxload.engine.explain import explain
from voxload.engine.graph.sharded import Sharded
from voxload.engine.methods import shard_methods, unshard
from voxload.engine.pipeline import pipeline_stage
from voxload.engine.pipeline_parts import pipeline_cuts, pipeline_parts
from voxload.engine.run.collectives import all_sum
from voxload.engine.shard import shard
from voxload.engine.sharded_weights import sharded_parameters

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
    "SplitPlan",
    "all_sum",
    "check",
    "explain",
    "from_dtensor",
    "grid_of",
    "losses",
    "mesh_of",
    "pipeline_cuts",
    "pipeline_parts",
    "pipeline_stage",
    "shard",
    "shard_methods",
    "sharded_parameters",
    "to_dtensor",
    "unshard",
]
