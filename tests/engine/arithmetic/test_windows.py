"""The integer arithmetic of windows, against torch's own layers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch import nn, zeros

from voxload.engine.arithmetic.windows import Window

_SIZES = st.integers(1, 12)
_SMALL = st.integers(1, 4)


@given(_SIZES, _SMALL, _SMALL, st.integers(1, 3), st.data(), st.booleans())
def test_outputs_are_as_many_as_torch_makes(
    extent: int, kernel: int, stride: int, dilation: int, data: st.DataObject, ceil: bool
) -> None:
    """The number of outputs equals that of torch's pooling, ceil_mode included."""
    padding = data.draw(st.integers(0, kernel // 2))
    window = Window(kernel, stride, dilation, padding, padding, ceil=ceil)
    layer = nn.MaxPool1d(kernel, stride, padding, dilation, ceil_mode=ceil)
    try:
        wanted = layer(zeros(1, 1, extent)).shape[-1]
    except RuntimeError:
        wanted = 0
    assert window.outputs(extent) == wanted


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), _SMALL, _SMALL, st.integers(1, 3), st.integers(0, 3))
def test_every_output_has_one_owner_and_its_window_is_needed(
    widths: list[int], kernel: int, stride: int, dilation: int, padding: int
) -> None:
    """Owners tile the outputs, and a rank's need runs from its first window's start to its last one's end."""
    bounds = (0, *(sum(widths[: index + 1]) for index in range(len(widths))))
    window = Window(kernel, stride, dilation, padding, padding)
    owners = window.owners(bounds)
    assert owners[0] == 0
    assert owners[-1] == window.outputs(bounds[-1])
    assert list(owners) == sorted(owners)
    for place, (lo, hi) in enumerate(window.needs(owners, bounds[-1])):
        outputs = range(owners[place], owners[place + 1])
        read = [output * stride - padding + tap * dilation for output in outputs for tap in range(kernel)]
        assert (lo, hi) == ((min(read), max(read) + 1) if read else (lo, lo))


def test_a_same_convolution_keeps_the_blocks() -> None:
    """Stride 1 with "same" padding leaves the bounds where they are; pooling by 2 halves them, rounding up."""
    bounds = (0, 3, 7, 10)
    assert Window(3, low=1, high=1).owners(bounds) == bounds
    assert Window(2, 2).owners(bounds) == (0, 2, 4, 5)
