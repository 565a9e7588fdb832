"""Poolings on blocks against torch.nn in float64: outputs and gradients."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.engine.virtual import worst_error

SPATIALS = [(2, 1, 1), (1, 3, 1), (1, 1, 4), (2, 2, 1), (1, 2, 3), (2, 2, 2)]


@st.composite
def poolings(draw: st.DrawFn) -> tuple[nn.Module, list[int], tuple[int, int, int]]:
    """Draw a pooling in any of its settings, the extents of a volume and a grid."""
    spatial = draw(st.sampled_from(SPATIALS))
    extents = [draw(st.integers(max(count, 2), 8)) for count in spatial]
    kernel = tuple(draw(st.integers(1, 4)) for _ in extents)
    stride = draw(st.none() | st.just(2) | st.tuples(*[st.integers(1, 3)] * 3))
    padding = tuple(draw(st.integers(0, size // 2)) for size in kernel)
    ceil = draw(st.booleans())
    if draw(st.booleans()):
        return nn.MaxPool3d(kernel, stride, padding, draw(st.sampled_from([1, 2])), ceil_mode=ceil), extents, spatial
    return (
        nn.AvgPool3d(
            kernel,  # type: ignore[arg-type] # three numbers each
            stride,
            padding,  # type: ignore[arg-type] # as above
            ceil_mode=ceil,
            count_include_pad=draw(st.booleans()),
            divisor_override=draw(st.none() | st.integers(1, 5)),
        ),
        extents,
        spatial,
    )


@given(poolings(), st.integers(0, 2**31), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_pooling_equals_one_process(
    case: tuple[nn.Module, list[int], tuple[int, int, int]], seed: int, ties: bool
) -> None:
    """Any pooling over any grid is torch's own result to rounding; ties go to the same voxel."""
    layer, extents, spatial = case
    torch.manual_seed(seed)
    x = torch.randn(2, 2, *extents, dtype=torch.float64)
    if ties:
        x = x.round()
    try:
        layer(x)
    except RuntimeError:
        return  # no window fits: torch has no result either
    errors = worst_error(nn.Sequential(layer, nn.Flatten()), x, spatial, shape=None)
    assert max(errors.values()) <= 1e-12, errors
