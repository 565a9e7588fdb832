"""Claim: what the engine computes, beside other engines, and the test that shows it.

Prints the table of features, or writes it into docs/engine.md between two marks; with --check it tells whether the
document holds it. The peers' entries are those of a survey; ours name the tests that they rest on.

    python bench/engine_features.py [--check | --write]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.documented import ROOT, Documented, table_row

DOCUMENT = ROOT / "docs" / "engine.md"
TESTS = Path("tests") / "engine"
"""Where the tests lie that are named."""
PEERS = (
    "DistConv-PT ●",
    "DistConv C++",
    "ShardTensor ●",
    "torch DTensor 2.15 ●",
    "DistDL",
    "Mesh-TF",
    "XLA GSPMD ●",
    "MPI4DL",
)
"""The columns; ● as the survey has it."""
CORRECT, UNSUPPORTED, WRONG, PARTIAL = "✔", "✖", "⚠", "~"
"""The legend."""

LAYERS = "test_many_layers.py::test_any_layer_over_any_cut_equals_one_process"
CONVOLUTIONS = "test_many_convolutions.py::test_any_convolution_over_any_cut_equals_one_process"
JOINS = "test_many_convolutions.py::test_every_way_of_joining_halos_equals_one_process"
COSMOFLOW = "test_equality.py::test_training_equals_one_process"
TRAINING = "test_training.py::test_training_equals_one_process"
NETWORKS = "test_networks.py::test_networks_equal_one_process"
U_NETS = "test_networks.py::test_u_nets_on_uneven_volumes"
EVALUATED = "test_shard.py::test_dropout_is_equal_on_all_ranks_of_a_group"
EXCHANGES = "test_exchanges.py::test_every_exchange_moves_the_same"


@dataclass(frozen=True, slots=True)
class Feature:
    """One row."""

    name: str
    """As the survey has it."""
    peers: str
    """Entries of the peers in their order, apart by bars."""
    ours: str
    """Our entry."""
    tests: tuple[str, ...]
    """What it rests on, as FILE::FUNCTION in `TESTS`; empty for what no test shows."""

    @property
    def cells(self) -> list[str]:
        """Entries of the peers."""
        return [cell.strip() for cell in self.peers.split("|")]


FEATURES = (
    Feature(
        "axes that are cut",
        "D,H,W any | N,D,H,W,C,F | any spatial | last | all | 2 of 3 | any | 2-D images",
        "✔ D,H,W x samples",
        (COSMOFLOW, TRAINING),
    ),
    Feature(
        "uneven blocks",
        "⚠ crash | ~ | ✔ stride 1 | ✖ | ✔ | ✖ | ✖ | ✖",
        "✔ arbitrary, empty too",
        (CONVOLUTIONS, LAYERS, U_NETS),
    ),
    Feature(
        "block thinner than the halo",
        "⚠ | ✖ | ⚠ | - | ⚠ | ✖ | ✔ all-gather | ✖",
        "✔ from any rank",
        (CONVOLUTIONS, "test_conv.py::test_any_convolution_equals_one_process"),
    ),
    Feature(
        "convolution, stride aligned / not aligned",
        "✔/✖ | ~/✖ | ✔/⚠ | ✖ | ✔/✔ | ~ | ✔/✔ | ✖",
        "✔/✔",
        (CONVOLUTIONS,),
    ),
    Feature("even kernel, any padding", "✖ | ✖ | ✖ | ✖ | ✔ | ✖ | ✔ | ✖", "✔", (CONVOLUTIONS,)),
    Feature("dilation / groups", "✖/✔ | ✔/✔ | ✔/✔ | ✖/~ | ✔/✔ | ✖ | ✔ | ✖", "✔/✔", (CONVOLUTIONS,)),
    Feature(
        "padding",
        "zeros, circular | zeros | zeros | - | ✔ zeros, others when built | same | zeros | zeros",
        "✔ zeros, circular, reflect, replicate",
        (CONVOLUTIONS, LAYERS),
    ),
    Feature(
        "transposed convolution, kernel = stride / any",
        "✔/⚠ | ✔/✖ | ✔/✖ | ✖ | ✖ | even kernel | ✔ | ✖",
        "✔/✔ any cut of the output",
        (CONVOLUTIONS,),
    ),
    Feature(
        "pooling, kernel = stride / overlapping",
        "✔/⚠ | ✔/~ | ✔/✖ | all-gather, no backward | ✔ | kernel = stride | ✔ | ~",
        "✔/✔",
        (LAYERS, "test_pool.py::test_any_pooling_equals_one_process"),
    ),
    Feature(
        "BatchNorm / InstanceNorm / GroupNorm",
        "⚠/⚠/⚠ | ✔/-/LayerNorm | ✖/✖/✔ 1-D | all-gather | ✔/✖/✖ | ✔ | ✔ | ✖",
        "✔/✔/✔",
        (LAYERS, NETWORKS),
    ),
    Feature("interpolation", "⚠ | ✔ | ~ ⚠ corners | ✖ | ✔ | ✖ | - | ✖", "✔", (LAYERS, NETWORKS)),
    Feature(
        "flatten, then dense layers",
        "by hand | ✔ | ✖ | ✔ | by hand | by hand | ✔ | layer-parallel",
        "✔",
        (COSMOFLOW, "test_conv.py::test_stacked_layers_equal_one_process"),
    ),
    Feature(
        "messages while computing, forward",
        "✖ | ✔ | ✖ | ✖ | ✖ | ✖ | compiler | in a benchmark",
        "✔ any axes, by `join=`",
        (JOINS, EXCHANGES),
    ),
    Feature(
        "the same, backward", "✖ | ✔ 1-D | ✖ | ✖ | ✖ | ✖ | compiler | ✖", "✔ any axes, by `join=`", (JOINS, EXCHANGES)
    ),
    Feature(
        "no padded copy of the block",
        "✖ | ✔ | ✖ | ✖ | ✖ | ✖ | ✖ | ✖",
        "✔ by `join=`",
        (JOINS, "test_networks.py::test_u_nets_whose_blocks_are_not_padded"),
    ),
    Feature(
        "double backward",
        "✖ ? | ✖ | ✔ likely | ✖ | ✖ | - | ✔ | ✖",
        "✔",
        ("test_networks.py::test_double_backward", "test_gather.py::test_second_derivatives_across_ranks"),
    ),
    Feature("activation checkpointing", "~ | mem-opt | ~ | ~ | ✖ | ✔ | ✔ | ✖", "✔", (TRAINING,)),
    Feature(
        "mixed precision",
        "~ | ✖ half | ✔ | ~ | ✖ | bfloat16 | ✔ | ✖",
        "✔ cast before it is sent",
        ("test_networks.py::test_autocast_casts_before_anything_is_sent",),
    ),
    Feature(
        "`torch.compile`, full graph",
        "✖ | - | ~ | ~ | ✖ | - | - | ✖",
        "✔",
        ("test_compiled.py::test_a_whole_compiled_graph_trains_alike", TRAINING),
    ),
    Feature(
        "DDP / FSDP2",
        "its own, ⚠ accumulation / ✖ | - | ✔/✔ | ~/✔ | ✖ | - | - | its own",
        "✔ torch's/✔, HSDP too",
        (TRAINING, COSMOFLOW),
    ),
    Feature(
        "on CPUs over gloo",
        "✔ not channels last | ✖ | ⚠ unregistered | ✔ | MPI | ✔ | ✔ | ✖",
        "✔",
        (COSMOFLOW, TRAINING, EXCHANGES),
    ),
    Feature(
        "exact inference on blocks",
        "by hand | - | ✔ | ✖ | - | - | ✔ | ✖",
        "✔",
        (COSMOFLOW, LAYERS, EVALUATED),
    ),
    Feature(
        "tests against one device",
        "float32, 1e-3 | a metric, 8 eps | 1e-4 to 1e-3 | few | adjoint | - | - | a script",
        "✔ float64, 1e-12, random layers",
        (CONVOLUTIONS, LAYERS, TRAINING),
    ),
)
"""The survey's rows, in its order."""

UNTESTED = ("on a GPU", "inference that streams a volume tile by tile")
"""What the survey or its readers ask for and no test of ours shows."""

_INTRODUCTION = """\
What the engine computes beside what others do. The peers' entries are those of a survey of 2026, by reading their
sources and, where marked ●, by running them on CPUs over gloo; nothing here runs them again. Ours are what tests of
this repository show, which the second table names.

✔ correct · ✖ not supported, with a clean error · ⚠ silently wrong, or a crash · ~ in part · - does not apply · ? and
*likely* not verified · others in words. Where a row names several things, entries are in their order."""
_LIMITS = """\
What the engine does not compute it refuses by name (`test_refusals.py`). Of messages that travel while a rank computes,
and of blocks that are not padded, tests show that the numbers are right; not what time or memory that saves."""


def section() -> str:
    """Return what stands between the marks."""
    parts = [_INTRODUCTION, "\n".join(_features()), _LIMITS, "\n".join(_tests())]
    return "\n\n".join(parts)


def _features() -> Iterator[str]:
    """Yield the lines of the table of features."""
    yield table_row(["feature", *PEERS, "voxload ●"])
    yield table_row(["---"] * (len(PEERS) + 2))
    for feature in FEATURES:
        yield table_row([feature.name, *feature.cells, feature.ours])


def _tests() -> Iterator[str]:
    """Yield the lines of the table of tests."""
    yield table_row(["feature", f"tests in `{TESTS.as_posix()}/`"])
    yield table_row(["---"] * 2)
    for feature in FEATURES:
        yield table_row([feature.name, ", ".join(f"`{test}`" for test in feature.tests) or "none"])
    for name in UNTESTED:
        yield table_row([name, "none"])


DOCUMENTED = Documented(DOCUMENT, "bench/engine_features.py", section)


if __name__ == "__main__":
    sys.exit(DOCUMENTED.main(__doc__))
