"""Transforms: the plain formula, in float32, voxel by voxel."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from voxload.errors import DataError, UsageError
from voxload.transforms import (
    Cast,
    ChannelsLast,
    Clip,
    Compose,
    Log1p,
    Scale,
    Standardize,
    Transform,
    fused,
)
from voxload.transforms import (
    fused as tables,
)
from voxload.transforms import (
    fused as threads,
)
from voxload.transforms.fused import compiled_chain

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
COUNTS = torch.from_numpy(np.random.default_rng(0).integers(0, 900, (2, 3, 4, 4, 4)).astype(np.int16))


def test_log1p_leaves_its_input() -> None:
    """Counts become float32 logarithms in a new tensor; float input is not changed in place either."""
    expected = np.log1p(COUNTS.numpy().astype(np.float32))
    np.testing.assert_allclose(Log1p()(COUNTS).numpy(), expected, rtol=1e-6)
    floats = COUNTS.float()
    Log1p()(floats)
    assert torch.equal(floats, COUNTS.float())


def test_standardize_acts_by_channel() -> None:
    """Each channel is shifted and scaled by its own pair; channels that do not match are refused."""
    found = Standardize([1, 2, 3], [1, 2, 4])(COUNTS)
    assert found.dtype == torch.float32
    assert torch.equal(found[:, 2], (COUNTS[:, 2].float() - 3) / 4)
    with pytest.raises(UsageError, match="found 3 channels, expected 2"):
        Standardize([0, 0], [1, 1])(COUNTS)
    with pytest.raises(UsageError, match="one positive std per mean"):
        Standardize([0], [0])


def test_compose_applies_in_order() -> None:
    """The first transform acts first, and the whole can be printed."""
    both = Compose(Log1p(), Standardize([0, 0, 0], [2, 2, 2]))
    assert torch.equal(both(COUNTS), Log1p()(COUNTS) / 2)
    assert repr(both) == "Compose(Log1p(), Standardize(mean=[0.0, 0.0, 0.0], std=[2.0, 2.0, 2.0]))"


DTYPES = (
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.uint32,
    torch.float32,
    torch.float64,
)
CHANNELS = 3
numbers = st.floats(-8, 8, width=32)
columns = st.lists(st.floats(0.125, 8, width=32), min_size=CHANNELS, max_size=CHANNELS)
steps = st.one_of(
    st.builds(Cast, st.sampled_from([torch.float32, torch.float16, torch.bfloat16])),
    st.just(Log1p()),
    st.builds(Scale, numbers, numbers),
    st.builds(Clip, st.floats(-8, 0), st.one_of(st.none(), st.floats(0, 8))),
    st.builds(Standardize, columns, columns),
    st.just(ChannelsLast()),
)


def _eager(volumes: torch.Tensor, step: Transform) -> torch.Tensor:
    """Return what a step means, in plain torch."""
    values = volumes.to(torch.float32)
    match step:
        case Cast(dtype):
            return values.to(dtype)
        case Log1p():
            return values.log1p()
        case Scale(scale, offset):
            return values * scale + offset
        case Clip(low, high):
            return values.clamp(low, high)
        case Standardize(mean, std):
            shape = (1, -1, *(1,) * (volumes.ndim - 2))
            return (values - torch.tensor(mean).reshape(shape)) / torch.tensor(std).reshape(shape)
        case _:
            return volumes.contiguous(memory_format=torch.channels_last_3d)


def _volumes(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return counts; of floating types, of both signs."""
    drawn = torch.from_numpy(np.random.default_rng(seed).integers(0, 120, shape))
    return (drawn % 2 if dtype == torch.bool else drawn - 20 if dtype.is_floating_point else drawn).to(dtype)


def _assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.ndim == 5 and found.numel():
        for layout in (torch.contiguous_format, torch.channels_last_3d):
            assert found.is_contiguous(memory_format=layout) == expected.is_contiguous(memory_format=layout)
    rtol = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}.get(found.dtype, 0.0)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("way", ["table", "slabs", "steps"])
@settings(max_examples=30)  # a table of all values each
@given(
    chain=st.lists(steps, max_size=5),
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(0, 2), st.just(CHANNELS), *[st.integers(1, 7)] * 3),
    is_last=st.booleans(),
)
def test_a_chain_equals_its_steps(
    way: str, chain: list[Transform], dtype: torch.dtype, shape: tuple[int, ...], is_last: bool
) -> None:
    """Whatever the steps, types, shapes and layouts, one pass gives what plain torch gives step by step."""
    volumes = _volumes(shape, dtype)
    if is_last:
        volumes = volumes.contiguous(memory_format=torch.channels_last_3d)
    expected, untouched, is_outside = volumes, volumes.clone(), False
    for step in chain:
        is_outside = is_outside or (isinstance(step, Log1p) and bool((expected.float() <= -1).any()))
        expected = _eager(expected, step)
    is_refused = is_outside and not bool(expected.isfinite().all())
    with pytest.MonkeyPatch.context() as patch:
        # Small volumes are worth neither a table nor slabs.
        patch.setattr(fused, "has_table", lambda volumes, _steps: way == "table" and volumes.itemsize <= 2)
        patch.setattr(fused, "_FEW", fused._FEW if way == "steps" else 0)
        if is_refused:
            with pytest.raises(DataError, match="Log1p: found values down to -"):
                Compose(*chain)(volumes)
            return
        found = Compose(*chain)(volumes)
    _assert_same(found, expected)
    assert torch.equal(volumes, untouched)


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("dtype", [torch.int16, torch.float32])
def test_no_logarithm_is_nan(dtype: torch.dtype) -> None:
    """Scans that are below zero nearly everywhere are an error; a number that is missing stays missing."""
    scan = torch.full((1, 1, 128, 128, 160), 40, dtype=dtype)
    assert bool(Log1p()(scan).isfinite().all())
    scan[0, 0, 127, 5, 9] = -900
    with pytest.raises(DataError, match=r"values down to -900, expected more than -1.* say Clip\(low=0\)"):
        Log1p()(scan)
    assert float(Compose(Clip(0), Log1p())(scan).min()) == 0
    if dtype == torch.float32:
        scan[0, 0, 127, 5, 9] = float("nan")
        assert int(Log1p()(scan).isnan().sum()) == 1


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.float32])
def test_large_volumes_go_through_all_slabs(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of many slabs with a rest, by many threads, through tables where they are worth it."""
    for module, name, voxels in ((fused, "_FEW", 0), (fused, "_SLAB", 2**12), (threads, "_ALONE", 0)):
        monkeypatch.setattr(module, name, voxels)
    volumes = _volumes((2, CHANNELS, 31, 37, 41), dtype).abs()
    chain = (Log1p(), Standardize([1, 2, 3], [0.5, 1, 2]), Scale(2, 1), Clip(-1, 4))
    expected = volumes
    for step in chain:
        expected = _eager(expected, step)
    assert tables.has_table(volumes.flatten(2), chain[:1]) == (dtype != torch.float32)
    assert tables.has_table(volumes.flatten(2), chain) == (dtype != torch.float32)
    found = Compose(*chain)(volumes)
    _assert_same(found, expected)
    assert torch.equal(found, expected) or dtype == torch.float32  # tables hold the steps' own results
    last = expected.contiguous(memory_format=torch.channels_last_3d).to(torch.bfloat16)
    _assert_same(Compose(*chain, ChannelsLast(), Cast(torch.bfloat16))(volumes), last)


def test_any_callable_may_stand_in_a_chain() -> None:
    """A callable of the user's sees what the steps before it made; nested chains act as one."""
    seen = []

    def halve(volumes: torch.Tensor) -> torch.Tensor:
        seen.append(volumes.dtype)
        return volumes[..., ::2]

    chain = Compose(Compose(Scale(2), halve), Log1p(), Cast(torch.float16))
    assert torch.equal(chain(COUNTS), (COUNTS.float() * 2)[..., ::2].log1p().to(torch.float16))
    assert seen == [torch.float32]
    assert Compose()(COUNTS) is COUNTS
    assert repr(Compose(Clip(0), compiled=False)) == "Compose(Clip(low=0, high=None), compiled=False)"


def test_transforms_are_values() -> None:
    """Steps are equal when they do the same, and travel to other processes, alone and in chains."""
    steps = (Log1p(), Scale(2, 1), Clip(0, 1), Cast(torch.float16), Standardize([1, 2, 3], [1, 2, 3]), ChannelsLast())
    again = pickle.loads(pickle.dumps(steps))  # noqa: S301 - our own
    assert again == steps
    assert len({*steps, *again}) == len(steps)
    chain = pickle.loads(pickle.dumps(Compose(*steps)))  # noqa: S301 - our own
    assert torch.equal(chain(COUNTS), Compose(*steps)(COUNTS))


def test_gradients_pass_and_users_may_compile() -> None:
    """Volumes that need gradients get them, and a function that calls a chain can be traced as a whole."""
    chain = Compose(Scale(3), Standardize([0, 0, 0], [1, 2, 4]))
    volumes = COUNTS.float().requires_grad_()
    (gradient,) = torch.autograd.grad(chain(volumes).sum(), volumes)
    assert torch.equal(gradient[:, 2], torch.full_like(gradient[:, 2], 0.75))
    with torch.no_grad():
        assert torch.equal(chain(volumes), chain(COUNTS))
    assert torch.equal(torch.compile(chain, backend="eager", fullgraph=True)(COUNTS), chain(COUNTS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cast(torch.int16), "Cast: found torch.int16"),
        (Clip, "one of them"),
        (lambda: Clip(2, 1), "low <= high"),
        (lambda: Clip(float("nan")), "low nan"),
        (lambda: Scale(float("inf")), "finite numbers"),
        (lambda: ChannelsLast()(COUNTS[0]), "found 4 axes"),
        (lambda: Compose(Log1p(), ChannelsLast())(COUNTS[0]), "found 4 axes"),
        (lambda: Compose(Log1p(), Standardize([0], [1]))(COUNTS), "found 3 channels, expected 1"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    """Steps say what they cannot do, when they are made or when they see the volumes."""
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # what torch.compile imports warns of itself
@pytest.mark.parametrize(
    ("backend", "width"), [("eager", 8), pytest.param("inductor", 7, marks=[pytest.mark.long, NEEDS_COMPILER])]
)
def test_the_compiled_kernel_gives_the_same(
    backend: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's way, one kernel by torch.compile, run on the CPU: equal to rounding, a kernel for each shape.

    The short run traces it and compiles nothing.
    """
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    if backend == "inductor":
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr("torch._inductor.config.cpp_cache_precompile_headers", False)  # they pay for many kernels
        # To find out which vectors this compiler and processor know, torch compiles six programs; a kernel needs none.
        monkeypatch.setattr("torch._inductor.config.cpp.vec_isa_ok", False)
        monkeypatch.setattr("torch._inductor.config.compile_threads", 1)  # whose pool would last
    steps = (Log1p(), Standardize([1, 2, 3], [0.5, 1, 2]), Scale(2, 1), Clip(-1, 4), Cast(torch.bfloat16))
    volumes = _volumes((2, CHANNELS, 5, 6, width), torch.int16)
    expected = volumes
    for step in steps:
        expected = _eager(expected, step)
    kernel = compiled_chain(steps, volumes, channels_last=True)
    found = kernel(volumes)
    _assert_same(found, expected.contiguous(memory_format=torch.channels_last_3d))
    assert compiled_chain(steps, volumes, channels_last=True) is kernel
    assert compiled_chain(steps, volumes[:1], channels_last=True) is not kernel
