"""UNet3D: levels, parameters, initial weights and refusals of both variants."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor, fx, nn

from voxload.errors import UsageError
from voxload.models import UNet3D
from voxload.models.unet3d import UNet3DVariant

VARIANTS: tuple[UNet3DVariant, ...] = ("kits19", "lbann")


@pytest.mark.long
def test_kits19_has_31_2_million_parameters() -> None:
    """The weights of MLPerf's layout by hand: 12 + 10 convolutions, 5 upsamplings, 22 scales and shifts, the end."""
    widths = [32, 64, 128, 256, 320, 320]
    entry = 27 * (1 * 32 + 32 * 32)
    down = sum(27 * (a * b + b * b) for a, b in pairwise(widths))
    up = sum((8 * b * a + a) + 27 * (2 * a * a + a * a) for a, b in pairwise(widths))
    norms = 2 * (2 * sum(widths)) + 2 * (2 * sum(widths[:-1]))
    assert _count(UNet3D(1, 3)) == entry + down + up + norms + (32 * 3 + 3) == 31_190_243


@pytest.mark.long
def test_lbann_has_19_07_million_parameters() -> None:
    """The weights of LBANN's layout by hand: 8 + 6 convolutions, 3 upsamplings, 14 scales and shifts, the end."""
    down = 27 * (1 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256 + 256 * 512)
    up = 27 * ((512 + 256) * 256 + 256 * 256 + (256 + 128) * 128 + 128 * 128 + (128 + 64) * 64 + 64 * 64)
    doubled = 8 * (512 * 512 + 256 * 256 + 128 * 128)
    norms = 2 * (32 + 64 + 64 + 128 + 128 + 256 + 256 + 512 + 2 * (256 + 128 + 64))
    assert _count(UNet3D(1, 3, variant="lbann")) == down + up + doubled + norms + 64 * 3 == 19_070_560


@pytest.mark.parametrize(
    ("variant", "encoded", "decoded"),
    [
        (
            "kits19",
            [(32, 64), (64, 32), (128, 16), (256, 8), (320, 4), (320, 2)],
            [(320, 4), (256, 8), (128, 16), (64, 32), (32, 64)],
        ),
        ("lbann", [(64, 64), (128, 32), (256, 16), (512, 8)], [(256, 16), (128, 32), (64, 64)]),
    ],
)
def test_each_level_halves_and_doubles_again(
    variant: UNet3DVariant, encoded: list[tuple[int, int]], decoded: list[tuple[int, int]]
) -> None:
    """Channels and extents of every block's result for a cube of 64 voxels."""
    with torch.device("meta"):
        model = UNet3D(1, 5, variant=variant)
        found = _results([*model.encoder, model.bottom, *model.decoder, model], torch.empty(2, 1, 64, 64, 64))
    assert found == [(2, width, extent, extent, extent) for width, extent in [*encoded, *decoded, (5, 64)]]
    assert model.input_multiple == 2 ** len(decoded)


def test_layers_follow_their_source() -> None:
    """MLPerf strides, normalises samples and has biases at upsamplings; LBANN pools and normalises batches."""
    with torch.device("meta"):
        kits19, lbann = UNet3D(), UNet3D(variant="lbann")
    blocks = [f"encoder.{level}" for level in range(5)] + ["bottom"]
    assert [_convolution(kits19, f"{block}.first.conv").stride[0] for block in blocks] == [1, 2, 2, 2, 2, 2]
    blocks = [f"encoder.{level}" for level in range(3)] + ["bottom"]
    assert [type(lbann.get_submodule(f"{block}.pool")) for block in blocks] == [nn.Identity, *3 * [nn.MaxPool3d]]
    assert _kinds(kits19) == {nn.Conv3d, nn.ConvTranspose3d, nn.InstanceNorm3d, nn.ReLU, nn.Identity}
    assert _kinds(lbann) == {nn.Conv3d, nn.ConvTranspose3d, nn.BatchNorm3d, nn.ReLU, nn.Identity, nn.MaxPool3d}
    assert {name for name, _ in kits19.named_parameters() if "norm" not in name and "bias" in name} == {
        "output.bias",
        *(f"decoder.{level}.up.bias" for level in range(5)),
    }
    assert not [name for name, _ in lbann.named_parameters() if "norm" not in name and "bias" in name]
    assert [(up.in_channels, up.out_channels) for up in _upsamplings(kits19)] == [
        *pairwise((320, 320, 256, 128, 64, 32))
    ]
    assert [(up.in_channels, up.out_channels) for up in _upsamplings(lbann)] == [(512, 512), (256, 256), (128, 128)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_float64_and_both_memory_layouts(variant: UNet3DVariant, layout: torch.memory_format) -> None:
    """Uneven extents, two channels, and gradients of every parameter, in double precision and either layout."""
    torch.manual_seed(1)
    model = UNet3D(2, 4, variant=variant, widths=(4, 6, 8)).double()
    x = torch.randn(2, 2, 8, 4, 16, dtype=torch.float64)
    expected = model(x)
    # torch's annotations leave out the form that takes a memory format alone.
    logits = model.to(memory_format=layout)(x.to(memory_format=layout))  # type: ignore[call-overload]
    torch.testing.assert_close(logits, expected)
    assert logits.shape == (2, 4, 8, 4, 16)
    (logits**2).sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_fx_traces_the_network(variant: UNet3DVariant) -> None:
    """The trace computes the same; its only functions join upsampled channels, which come first, with the encoder's."""
    torch.manual_seed(2)
    model = UNet3D(variant=variant, widths=(4, 6, 8)).eval()
    traced = fx.symbolic_trace(model)
    x = torch.randn(1, 1, 8, 8, 8)
    torch.testing.assert_close(traced(x), model(x), rtol=0, atol=0)
    assert {node.op for node in traced.graph.nodes} == {"placeholder", "call_module", "call_function", "output"}
    joins = [node for node in traced.graph.nodes if node.op == "call_function"]
    assert [(node.target, *(str(source.target) for source in node.all_input_nodes)) for node in joins] == [
        (torch.cat, "decoder.0.up", "encoder.1.second.relu"),
        (torch.cat, "decoder.1.up", "encoder.0.second.relu"),
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_initial_weights_can_be_drawn_again(variant: UNet3DVariant) -> None:
    """The same seed draws the same from memory that was never initialised; and the network can be pickled."""
    with torch.device("meta"):
        empty = UNet3D(variant=variant, widths=(8, 16))
    drawn = empty.to_empty(device="cpu")
    torch.manual_seed(3)
    drawn.reset_parameters()
    model = UNet3D(variant=variant, widths=(8, 16))
    torch.manual_seed(3)
    model.reset_parameters()
    for other in (drawn, pickle.loads(pickle.dumps(model))):  # noqa: S301 - pickled just here
        torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_initial_weights_follow_their_source() -> None:
    """MLPerf leaves torch's uniform draws, 1 / sqrt(fan-in); LBANN draws He's normal ones, sqrt(2 / fan-in)."""
    torch.manual_seed(5)
    uniform = _convolution(UNet3D(widths=(16, 32)), "encoder.0.second.conv").weight
    assert 0.95 / math.sqrt(27 * 16) < uniform.abs().max().item() <= 1 / math.sqrt(27 * 16)
    normal = UNet3D(variant="lbann", widths=(16, 32))
    for path, inputs in (("bottom.second.conv", 27 * 16), ("decoder.0.up", 8 * 32)):
        weight = _convolution(normal, path).weight
        assert weight.std().item() == pytest.approx(math.sqrt(2 / inputs), rel=0.05)
        assert weight.abs().max().item() > 3 * math.sqrt(2 / inputs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_widths_make_other_depths(variant: UNet3DVariant) -> None:
    """Two numbers make one level; the bottom has the last of them."""
    model = UNet3D(3, 2, variant=variant, widths=[4, 10])
    assert (len(model.encoder), len(model.decoder), model.input_multiple) == (1, 1, 2)
    assert _convolution(model, "bottom.second.conv").out_channels == 10
    assert model(torch.randn(1, 3, 6, 4, 2)).shape == (1, 2, 6, 4, 2)


@pytest.mark.parametrize(
    ("variant", "widths", "expected"),
    [
        ("kits19", (), "two or more"),
        ("kits19", (8,), "two or more"),
        ("kits19", (8, 0), "at least one channel"),
        ("kits19", (-8, 8), "at least one channel"),
        ("lbann", (8, 9), "positive multiples of 2"),
        ("lbann", (0, 8), "positive multiples of 2"),
    ],
)
def test_widths_without_a_network_are_refused(variant: UNet3DVariant, widths: Sequence[int], expected: str) -> None:
    """Fewer than two levels, levels without channels, and odd widths where half is needed."""
    with pytest.raises(UsageError, match=f"widths of UNet3D: .*{expected}"):
        UNet3D(variant=variant, widths=widths)


def test_senseless_settings_are_refused() -> None:
    """No channels, no classes, an unknown variant."""
    for settings in ((0, 3), (1, 0), (-1, 3)):
        with pytest.raises(UsageError, match="at least one channel and class"):
            UNet3D(*settings)
    with pytest.raises(UsageError, match="variant of UNet3D: found 'nnunet', expected 'kits19' or 'lbann'"):
        UNet3D(variant="nnunet")  # type: ignore[arg-type]


def _count(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(weight.numel() for weight in model.parameters())


def _kinds(model: nn.Module) -> set[type[nn.Module]]:
    """Return the kinds of layers in `model`, without the modules that hold others."""
    return {type(module) for module in model.modules() if not list(module.children())}


def _upsamplings(model: nn.Module) -> list[nn.ConvTranspose3d]:
    """Return the transposed convolutions, the deepest first."""
    return [module for module in model.modules() if isinstance(module, nn.ConvTranspose3d)]


def _results(blocks: list[nn.Module], x: Tensor) -> list[tuple[int, ...]]:
    """Return the shape of each block's result when the last of them, the network, runs on `x`."""
    shapes: list[tuple[int, ...]] = []
    for block in blocks:
        block.register_forward_hook(lambda _, __, result: shapes.append(tuple(result.shape)))
    blocks[-1](x)
    return shapes


def _convolution(model: nn.Module, path: str) -> nn.Conv3d | nn.ConvTranspose3d:
    """Return the convolution at `path`."""
    layer = model.get_submodule(path)
    assert isinstance(layer, nn.Conv3d | nn.ConvTranspose3d)
    return layer
