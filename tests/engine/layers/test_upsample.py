"""The places of nearest neighbours, against torch's own kernels, which differ by type and memory format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from voxload.engine.layers.upsample import Resize, Rounding

FACTORS = st.one_of(
    st.integers(1, 60).map(lambda tenths: tenths / 10),
    st.integers(1, 12).map(lambda quarters: quarters / 4),
    st.integers(10, 400).map(lambda hundredths: hundredths / 100),
)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last_3d])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@settings(max_examples=300, deadline=None)
@example(channels=4, extent=16, factor=2.7, is_size=False)
@example(channels=3, extent=16, factor=5.2, is_size=True)
@example(channels=4, extent=25, factor=5.4, is_size=False)
@example(channels=4, extent=37, factor=2.02, is_size=False)
@given(channels=st.integers(1, 8), extent=st.integers(1, 40), factor=FACTORS, is_size=st.booleans())
def test_nearest_neighbours_are_torchs(
    mode: str, dtype: torch.dtype, memory: Any, *, channels: int, extent: int, factor: float, is_size: bool
) -> None:
    """Every output is the copy of the voxel that torch copies, and a rank's need holds it, whatever type comes."""
    count = int(np.floor(extent * factor))
    if not count:
        return
    x = torch.arange(extent, dtype=dtype).expand(1, channels, 2, 2, extent).contiguous(memory_format=memory)
    resize = Resize(mode, size=count) if is_size else Resize(mode, factor=factor)
    words: dict[str, Any] = {"size": (2, 2, count)} if is_size else {"scale_factor": (1.0, 1.0, factor)}
    wanted = functional.interpolate(x, mode=mode, **words)[0, 0, 0, 0].numpy().astype(int)
    assert resize.outputs(extent) == len(wanted)
    found, _, _ = resize.sources(0, len(wanted), extent, Rounding.of(x))
    np.testing.assert_array_equal(found, wanted)
    owners = resize.owners((0, extent // 2, extent))
    for rank, (low, stop) in enumerate(resize.needs(owners, extent)):
        mine = wanted[owners[rank] : owners[rank + 1]]
        assert all(low <= place < stop for place in mine)
