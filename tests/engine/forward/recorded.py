"""The recording of a model's forward, for tests of what is made of it."""

from __future__ import annotations

from torch import Tensor, nn

from voxload.engine.forward.inputs import Inputs
from voxload.engine.forward.recording import Recording, record
from voxload.engine.model.skeleton import Skeleton


def recorded(model: nn.Module, *tensors: Tensor) -> Recording:
    """Return what forward asks of torch for tensors of these shapes, types and devices."""
    skeleton = Skeleton(model)
    skeleton.follow(model)
    return record(skeleton, model, Inputs.of(tensors, {}))
