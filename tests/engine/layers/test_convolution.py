"""Conv3d on blocks against torch.nn in float64: outputs and every gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.engine.virtual import worst_error

SPATIALS = [(2, 1, 1), (1, 3, 1), (1, 1, 4), (2, 2, 1), (1, 2, 3), (2, 2, 2)]


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Conv3d, list[int], tuple[int, int, int]]:
    """Draw a convolution, the extents of a volume and a grid; many blocks are thinner than the halo."""
    spatial = draw(st.sampled_from(SPATIALS))
    extents = [draw(st.integers(max(count, 2), 7)) for count in spatial]
    kernel = [draw(st.sampled_from([1, 2, 3, 3, 5])) for _ in extents]
    stride = [draw(st.sampled_from([1, 1, 2, 3])) for _ in extents]
    dilation = [draw(st.sampled_from([1, 1, 2])) for _ in extents]
    mode = draw(st.sampled_from(["zeros", "zeros", "circular"]))
    padding: str | tuple[int, ...] = "same"
    if any(step > 1 for step in stride) or draw(st.booleans()):
        padding = tuple(draw(st.integers(0, size)) for size in kernel)
    groups = draw(st.sampled_from([1, 2]))
    layer = nn.Conv3d(
        2,
        4,
        tuple(kernel),  # type: ignore[arg-type] # three numbers each
        stride=tuple(stride),  # type: ignore[arg-type] # as above
        padding=padding,  # type: ignore[arg-type] # as above
        dilation=tuple(dilation),  # type: ignore[arg-type] # as above
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,  # type: ignore[arg-type] # one of torch's modes
    ).double()
    return layer, extents, spatial


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@given(convolutions(), st.integers(0, 2**31))
@settings(deadline=None, max_examples=40)
def test_any_convolution_equals_one_process(case: tuple[nn.Conv3d, list[int], tuple[int, int, int]], seed: int) -> None:
    """Any kernel, stride, dilation, groups and padding, over any grid, is torch's own result to rounding."""
    layer, extents, spatial = case
    torch.manual_seed(seed)
    x = torch.randn(2, 2, *extents, dtype=torch.float64)
    try:
        with torch.no_grad():
            layer(x)
    except RuntimeError:
        return  # no window fits, or circular padding wider than the volume: torch has no result either
    errors = worst_error(nn.Sequential(layer, nn.Flatten()), x, spatial, shape=None)
    assert max(errors.values()) <= 1e-12, errors


@pytest.mark.long
@given(
    st.sampled_from([1, 3, 5, 7]),
    st.sampled_from([1, 2]),
    st.integers(3, 9),
    st.sampled_from([(2, 1, 1), (3, 1, 1), (1, 2, 2)]),
)
@settings(deadline=None, max_examples=24)
def test_stacked_layers_equal_one_process(kernel: int, stride: int, extent: int, spatial: tuple[int, int, int]) -> None:
    """Gradients pass through a stack of convolutions, a skip and a pooling, over blocks that become empty."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv3d(1, 2, kernel, padding=kernel // 2, stride=stride)
            self.second = nn.Conv3d(2, 2, 3, padding="same")
            self.act = nn.PReLU(2)
            self.pool = nn.MaxPool3d(2, ceil_mode=True)
            self.fc = nn.LazyLinear(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.tanh(self.first(x))
            x = self.act(self.second(x)) + 0.5 * x
            x = self.pool(x)
            scores: torch.Tensor = self.fc(x.view(x.size(0), -1))
            return scores

    torch.manual_seed(extent)
    x = torch.randn(2, 1, extent, extent, extent, dtype=torch.float64)
    model = Net().double()
    with torch.no_grad():
        model(x)
    errors = worst_error(model, x, spatial, shape=None)
    assert max(errors.values()) <= 1e-12, errors
