"""What torch's compiler must be told about operators that talk to other ranks."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from voxload.errors import UsageError


def keep_order(operator: str) -> None:
    """Tell torch's compiler to leave calls of the custom operator of this name in the order in which they are written.

    Two ranks compile two graphs, of blocks of different extents. A compiler that moved one exchange before another on
    one of them, as it may do with operators that depend on nothing but their inputs, would leave both waiting for
    each other.
    """
    register = getattr(torch.library, "_register_effectful_op", None)  # there is no public way
    if register is not None:
        register(operator, importlib.import_module("torch._library.effects").EffectType.ORDERED)
        return
    # Older versions have the table in the compiler, which is then imported with this package.
    effects: Any = importlib.import_module("torch._higher_order_ops.effects")
    space, name = operator.split("::")
    effects._register_effectful_op(getattr(getattr(torch.ops, space), name).default, effects._EffectType.ORDERED)  # noqa: SLF001 - as above


def require_whole_graph() -> bool:
    """Raise UsageError while a compiler follows a pass under DDP and would cut its graph where DDP's buckets end.

    torch 2.13 loses the results of a part whose operators are kept in order.
    """
    active = DistributedDataParallel._get_active_ddp_module()  # type: ignore[no-untyped-call] # noqa: SLF001 - as the compiler asks
    if active is not None and torch._dynamo.config.optimize_ddp is True:  # noqa: SLF001 - documented by torch
        raise UsageError(
            "torch.compile of a split network under DistributedDataParallel",
            found="torch._dynamo.config.optimize_ddp",
            remedy="set it to False, or use FSDP",
        )
    return True


def refuse_export(name: str) -> None:
    """Raise UsageError where a pass of a network of the class `name`, whose own forward runs, is to be exported."""
    raise UsageError(
        f"export of a split {name}",
        found="a network whose own forward runs on blocks",
        expected="torch.compile, which runs on the ranks that it compiles on",
        remedy="export the model before voxload.engine.shard",
    )


def refuse_part() -> bool:
    """Raise UsageError while a compiler follows a layer that is given blocks of a network whose own forward runs."""
    raise UsageError(
        "torch.compile of a layer of a split network",
        found="blocks, which the compiler does not follow",
        expected="the whole network, of which every rank compiles one graph",
        remedy="compile the whole network, with shape= given to voxload.engine.shard, or this layer nowhere",
    )


# What torch.compiler.assume_constant_result sets, which would import the whole compiler with this package.
for _asked in (require_whole_graph, refuse_part):
    _asked._dynamo_marked_constant = True  # type: ignore[attr-defined] # noqa: SLF001 - as above
