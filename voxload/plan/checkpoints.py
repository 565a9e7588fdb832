"""checkpoint_modules: activation checkpointing of the modules that a plan names, by torch's own wrapper."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

from voxload.errors import UsageError

_INSERTED = "_checkpoint_wrapped_module."


def checkpoint_modules(network: nn.Module, paths: Collection[str]) -> None:
    """Let modules of a network, split or not, keep nothing for the backward pass, and run again in it.

    Names in ``state_dict`` stay as they are; the network is changed. Call it behind `voxload.engine.shard`, and before
    whatever wraps the network, such as DistributedDataParallel.

    Parameters
    ----------
    network
        The network.
    paths
        Of its modules, none within another.

    Raises
    ------
    UsageError
        When there is no such module.
    """
    chosen = set[nn.Module]()
    for path in paths:
        try:
            chosen.add(network.get_submodule(path))
        except AttributeError as error:
            raise UsageError(
                "modules to checkpoint",
                found=repr(path),
                expected="paths of the network's modules",
                remedy="plan again",
            ) from error
    apply_activation_checkpointing(network, check_fn=chosen.__contains__)


def plain_path(path: str) -> str:
    """Return the path that a module, or a parameter, had before modules were wrapped.

    Examples
    --------
    >>> plain_path("features.0._checkpoint_wrapped_module.conv")
    'features.0.conv'
    """
    return path.replace(_INSERTED, "").removesuffix("._checkpoint_wrapped_module")
