"""CosmoFlow: sizes, parameters, initial weights and refusals of both variants."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import fx, nn

from voxload.errors import UsageError
from voxload.models import CosmoFlow
from voxload.models.cosmoflow import CosmoFlowVariant

VARIANTS: tuple[CosmoFlowVariant, ...] = ("mlperf", "lbann")
LBANN_WIDTHS = [16, 32, 64, 128, 256, 256, 256]


@pytest.mark.parametrize(("size", "blocks", "widest"), [(32, 3, 128), (64, 4, 256), (128, 5, 512), (512, 7, 512)])
def test_depth_and_width_follow_the_size(size: int, blocks: int, widest: int) -> None:
    """There are log2(size) - 2 convolutions, doubling up to 512 channels, and 4^3 voxels are flattened."""
    with torch.device("meta"):
        model = CosmoFlow(size)
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv3d)]
    assert [layer.out_channels for layer in convolutions] == [min(32 << index, 512) for index in range(blocks)]
    first = next(layer for layer in model.modules() if isinstance(layer, nn.Linear))
    assert (first.in_features, first.out_features) == (widest * 64, 128)
    assert model.input_shape == (size, size, size)


def test_mlperf_has_8_9_million_parameters() -> None:
    """The 128^3 network is MLPerf's: weights and biases of five convolutions and three dense layers, by hand."""
    widths = [4, 32, 64, 128, 256, 512]
    wanted = sum(27 * a * b + b for a, b in pairwise(widths))
    wanted += 32768 * 128 + 128 + 128 * 64 + 64 + 64 * 4 + 4
    assert sum(weight.numel() for weight in CosmoFlow(128).parameters()) == wanted


def test_outputs_and_initial_weights() -> None:
    """Outputs reach 1.2 on both sides at most; weights are Glorot-uniform, biases zero."""
    torch.manual_seed(0)
    model = CosmoFlow(32, channels=2, targets=3)
    found = model(1e3 * torch.randn(2, 2, 32, 32, 32))
    assert found.shape == (2, 3)
    assert 1.0 < found.abs().max().item() < 1.200001
    for layer in model.modules():
        if isinstance(layer, nn.Conv3d | nn.Linear):
            window = math.prod(layer.kernel_size) if isinstance(layer, nn.Conv3d) else 1
            limit = math.sqrt(6 / (window * (layer.weight.shape[0] + layer.weight.shape[1])))
            assert 0.9 * limit < layer.weight.abs().max().item() <= limit
            assert layer.bias is not None
            assert not layer.bias.any()


def test_mlperf_is_the_default_and_starts_from_the_same_seed() -> None:
    """Names, order and first values are those of the layers written out: checkpoints and seeded runs depend on them."""
    torch.manual_seed(1)
    widths = [4, 32, 64, 128]
    plain = nn.ModuleDict(
        {
            "features": nn.Sequential(
                *(
                    nn.Sequential(nn.Conv3d(a, b, 3, padding="same"), nn.LeakyReLU(0.3), nn.MaxPool3d(2))
                    for a, b in pairwise(widths)
                )
            ),
            "head": nn.Sequential(
                *(nn.Flatten(), nn.Linear(128 * 64, 128), nn.LeakyReLU(0.3), nn.Dropout(0.5)),
                *(nn.Linear(128, 64), nn.LeakyReLU(0.3), nn.Dropout(0.5), nn.Linear(64, 4), nn.Tanh()),
            ),
        }
    )
    for layer in plain.modules():
        if isinstance(layer, nn.Conv3d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    torch.manual_seed(1)
    model = CosmoFlow(32)
    assert list(model.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(model.state_dict(), dict(plain.state_dict()), rtol=0, atol=0)
    x = torch.randn(2, 4, 32, 32, 32)
    expected = 1.2 * plain.eval()["head"](plain["features"](x))
    torch.testing.assert_close(model.eval()(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("size", "extents"),
    [
        (32, [16, 8, 4, 2, 2, 2, 2]),
        (64, [32, 16, 8, 2, 2, 2, 2]),
        (128, [64, 32, 16, 4, 2, 2, 2]),
        (256, [128, 64, 32, 8, 4, 2, 2]),
        (512, [256, 128, 64, 16, 8, 4, 2]),
    ],
)
def test_lbann_keeps_its_layers_at_every_size(size: int, extents: list[int]) -> None:
    """Seven convolutions, a stride at the fourth, as many averages as leave 2^3 voxels; 9.44 million parameters."""
    with torch.device("meta"):
        model = CosmoFlow(size, variant="lbann")
        x = torch.empty(1, 4, size, size, size)
        found = [(x := stage(x)).shape[1:] for stage in model.features]
        assert model.head(x).shape == (1, 4)
    assert found == [(width, extent, extent, extent) for width, extent in zip(LBANN_WIDTHS, extents, strict=True)]
    wanted = sum(27 * a * b for a, b in pairwise([4, *LBANN_WIDTHS]))
    wanted += 256 * 8 * 2048 + 2048 + 2048 * 256 + 256 + 256 * 4 + 4
    assert sum(weight.numel() for weight in model.parameters()) == wanted == 9_437_636


def test_lbann_follows_its_source() -> None:
    """Overlapping averages whose zeros count, slopes of 0.01, a fifth dropped before every dense layer, no tanh."""
    model = CosmoFlow(32, variant="lbann")
    kinds = [type(layer) for layer in model.head]
    dense = [nn.Dropout, nn.Linear, nn.LeakyReLU]
    assert kinds == [nn.Flatten, *dense, *dense, nn.Dropout, nn.Linear]
    poolings = [layer for layer in model.modules() if isinstance(layer, nn.AvgPool3d)]
    assert {(layer.kernel_size, layer.stride, layer.padding, layer.count_include_pad) for layer in poolings} == {
        (3, 2, 1, True)
    }
    assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {0.2}
    assert {layer.negative_slope for layer in model.modules() if isinstance(layer, nn.LeakyReLU)} == {0.01}
    assert {layer.stride for layer in model.modules() if isinstance(layer, nn.Conv3d)} == {(1, 1, 1), (2, 2, 2)}
    with torch.no_grad():
        assert model.eval()(1e4 * torch.randn(2, 4, 32, 32, 32)).abs().max() > 1.2


def test_lbann_starts_from_glorot_and_biases_of_a_tenth() -> None:
    """Weights are Glorot-uniform; only fully connected layers have biases."""
    torch.manual_seed(2)
    for layer in CosmoFlow(32, variant="lbann").modules():
        if isinstance(layer, nn.Conv3d | nn.Linear):
            window = math.prod(layer.kernel_size) if isinstance(layer, nn.Conv3d) else 1
            limit = math.sqrt(6 / (window * (layer.weight.shape[0] + layer.weight.shape[1])))
            assert 0.9 * limit < layer.weight.abs().max().item() < 1.000001 * limit
            assert isinstance(layer, nn.Conv3d) == (layer.bias is None)
            assert layer.bias is None or (layer.bias == 0.1).all()


@pytest.mark.parametrize(("variant", "widths"), [("mlperf", [32, 64, 128]), ("lbann", LBANN_WIDTHS)])
def test_batch_norm_follows_every_convolution(variant: CosmoFlowVariant, widths: list[int]) -> None:
    """Scales and shifts in place of biases, slow running statistics, and weights from He's normal distribution."""
    torch.manual_seed(3)
    model = CosmoFlow(32, variant=variant, batch_norm=True)
    stages = [[*stage.children()] for stage in model.features]
    assert [stage[0].bias for stage in stages] == [None] * len(widths)
    norms = [layer for stage in stages for layer in stage[1:2] if isinstance(layer, nn.BatchNorm3d)]
    assert [layer.num_features for layer in norms] == widths
    assert {layer.momentum for layer in norms} == {0.01}
    assert all(isinstance(stage[2], nn.LeakyReLU) for stage in stages)
    for layer in model.modules():
        if isinstance(layer, nn.Conv3d | nn.Linear) and layer.weight.numel() > 5000:
            deviation = math.sqrt(2 / layer.weight[0].numel())
            assert layer.weight.std().item() == pytest.approx(deviation, rel=0.05)
            assert layer.weight.abs().max().item() > 3 * deviation
    plain = CosmoFlow(32, variant=variant)
    biases = sum(
        layer.bias.numel() for layer in plain.modules() if isinstance(layer, nn.Conv3d) and layer.bias is not None
    )
    found, before = (sum(weight.numel() for weight in network.parameters()) for network in (model, plain))
    assert found == before - biases + 2 * sum(widths)


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "batch_norm"),
    [
        ("mlperf", False),
        ("lbann", True),
        pytest.param("mlperf", True, marks=pytest.mark.long),
        pytest.param("lbann", False, marks=pytest.mark.long),
    ],
)
def test_gradients_reach_every_parameter(variant: CosmoFlowVariant, batch_norm: bool) -> None:
    """In double precision, and alike when channels are last in memory."""
    torch.manual_seed(4)
    model = CosmoFlow(32, 2, 3, variant=variant, batch_norm=batch_norm, dropout=0.0).double()
    x = torch.randn(2, 2, 32, 32, 32, dtype=torch.float64)
    expected = model(x)
    assert expected.shape == (2, 3)
    (expected**2).sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())
    # torch's annotations leave out the form that takes a memory format alone.
    last = model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
    torch.testing.assert_close(last(x.to(memory_format=torch.channels_last_3d)), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_fx_traces_the_network(variant: CosmoFlowVariant) -> None:
    """The trace computes the same."""
    model = CosmoFlow(32, variant=variant, batch_norm=True).eval()
    x = torch.randn(1, 4, 32, 32, 32)
    torch.testing.assert_close(fx.symbolic_trace(model)(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize(("variant", "share"), [("mlperf", 0.5), ("lbann", 0.2)])
def test_dropout_is_the_variants_own_unless_given(variant: CosmoFlowVariant, share: float) -> None:
    """None is the source's share; a number, zero too, is taken everywhere."""
    for given, wanted in ((None, share), (0.0, 0.0), (0.3, 0.3)):
        with torch.device("meta"):
            model = CosmoFlow(32, variant=variant, dropout=given)
        assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {wanted}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [16, 48, 1024, 0, -32])
def test_other_sizes_are_refused(size: int, variant: CosmoFlowVariant) -> None:
    """Only powers of two from 32 to 512 make the network."""
    with pytest.raises(UsageError, match="power of two from 32 to 512"):
        CosmoFlow(size, variant=variant)


def test_unknown_variants_are_refused() -> None:
    """The message names those that there are."""
    with pytest.raises(UsageError, match="variant of CosmoFlow: found 'resnet', expected 'mlperf' or 'lbann'"):
        CosmoFlow(32, variant="resnet")  # type: ignore[arg-type]


def test_senseless_settings_are_refused() -> None:
    """No channels, no targets, or all features dropped."""
    for settings in ({"channels": 0}, {"targets": 0}, {"dropout": 1.0}, {"dropout": -0.1}):
        with pytest.raises(UsageError, match="at least one channel"):
            CosmoFlow(32, **settings)
