"""Windows that reach far: what is fetched for them, and what they give."""

from __future__ import annotations

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from tests.engine.forward.recorded import recorded
from tests.engine.forward.test_running import TOLERANCE, errors_of
from voxload.engine.forward.planning import plan_forward
from voxload.engine.forward.rules.windows import Windowed
from voxload.engine.forward.sharding import Factor, Sharding


def _gen(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Convolution(nn.Module):
    """A convolution along the first axis of a volume that depends on a weight."""

    def __init__(self, weight: Tensor, stride: int, padding: int, dilation: int) -> None:
        super().__init__()
        self.bend, self.weight = nn.Parameter(torch.tensor(0.1)), weight
        self.settings = (stride, 1, 1), (padding, 0, 0), (dilation, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        return functional.conv3d(x + self.bend * x.square(), self.weight, None, *self.settings)


@drawn(st.data())
def test_wide_dilations_make_no_room_outside_of_the_volume(data: st.DataObject) -> None:
    """Whatever the blocks: no rank makes more than twice the volume's own extent, and all outputs are right."""
    extent = data.draw(st.integers(2, 12))
    kernel, stride = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 3))
    dilation = data.draw(st.integers(extent // 2, 3 * extent).filter(bool))
    padding = data.draw(st.integers(-(-dilation * (kernel - 1) // 2), dilation * (kernel - 1)))
    ranks = data.draw(st.integers(2, min(4, extent)))
    weight, x = _gen(3, 1, kernel, 1, 1), _gen(1, 1, extent, 2, 2)
    model = Convolution(weight, stride, padding, dilation)
    errors = errors_of(model, x, (ranks, 1, 1))
    assert max(errors.values()) <= TOLERANCE, errors
    bounds = tuple(extent * place // ranks for place in range(ranks + 1))
    cut = Sharding((*Sharding.whole((1, 1)).dims, (Factor(extent, 0, bounds),), *Sharding.whole((2, 2)).dims))
    plan = plan_forward(recorded(model.double(), x), [cut])
    slides = [each for _, step in plan.sequence if isinstance(step.action, Windowed) for each in step.action.slides]
    needs = [stop - start for each in slides if each.plan is not None for start, stop in each.plan.needs]
    assert needs
    assert max(needs) <= 2 * extent
