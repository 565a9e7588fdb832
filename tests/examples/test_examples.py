"""Examples train to the same losses with torch's loader and ours, and frameworks leave our loaders what they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.examples.cases import DEALINGS, FRAMES, FRAMEWORKS, LOADERS, LONG
from tests.support.ranks import printed_by_ranks

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(torch|monai|voxload): (epoch (\d+), .*)")


@dataclass(frozen=True)
class Launch:
    """What two ranks printed."""

    lines: dict[str, list[str]]
    """What each example printed."""
    ranks: list[dict[str, Any]]
    """What frameworks made of the loaders, by rank."""


@pytest.fixture(scope="module")
def launch(request: pytest.FixtureRequest, universes: Path) -> Launch:
    """Run the examples in one job: to start and import costs more than to train."""
    is_long = any(item.path == request.path and item.get_closest_marker("long") for item in request.session.items)
    names = [name for name in (*LOADERS, *FRAMEWORKS) if is_long or name not in LONG]
    printed = printed_by_ranks("tests.examples.rank_examples", universes, *names, ranks=2)
    lines: dict[str, list[str]] = {}
    ranks = []
    for line in printed.splitlines():
        if line.startswith("# "):
            lines[line[2:]] = []
        elif line.startswith("{"):
            ranks.append(json.loads(line))
        elif LINE.fullmatch(line):
            list(lines.values())[-1].append(line)
    return Launch(lines, sorted(ranks, key=lambda row: int(row["rank"])))


def test_every_example_is_run() -> None:
    """No example is left out of these tests."""
    assert sorted(path.stem for path in FRAMES.glob("*.py")) == sorted(LOADERS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in LOADERS]
)
def test_losses_are_those_with_torchs_loader(launch: Launch, name: str) -> None:
    """Each epoch's loss is equal to the last bit, and training makes it smaller."""
    losses: dict[str, list[str]] = {loader: [] for loader in LOADERS[name]}
    for line in launch.lines[name]:
        found = LINE.fullmatch(line)
        assert found is not None
        losses[found[1]].append(found[2])
    theirs, ours = losses.values()
    assert ours == theirs
    assert [line.split(",")[0] for line in ours] == ["epoch 0", "epoch 1"]
    first, last = (float(re.findall(r"loss'?:? ([\d.e-]+)", line)[-1]) for line in (ours[0], ours[-1]))
    assert last < first


@pytest.mark.long
def test_sharded_parameters_train_as_replicated_ones(launch: Launch) -> None:
    """FSDP2 and DDP give the same losses, to rounding."""
    ours = [[float(line.split()[-1]) for line in launch.lines[name]] for name in ("ddp", "fsdp2")]
    assert ours[0] == pytest.approx(ours[1], rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("configuration", DEALINGS)
def test_accelerate_deals_the_same_batches(launch: Launch, configuration: str, *, drop_last: bool) -> None:
    """A prepared loader gives each rank the batches, and the signs of the end, of torch's loader prepared."""
    for rank in launch.ranks:
        streams = rank["accelerate"]["streams"][f"{configuration}, drop_last={drop_last}"]
        assert streams["voxload"] == streams["torch"]
    mine, other = (rank["accelerate"]["streams"][f"{configuration}, drop_last={drop_last}"] for rank in launch.ranks)
    assert mine["voxload"] != other["voxload"]


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["dealt", "drawn"])
def test_accelerate_leaves_a_group_its_samples(launch: Launch, sampler: str) -> None:
    """Ranks that share samples get the same ones, whoever deals them: all nine, and in another order next."""
    mine, other = (rank["accelerate"][sampler] for rank in launch.ranks)
    epochs = list(_epochs(mine))
    assert epochs == list(_epochs(other))
    assert mine != other  # another half
    assert mine[0] == other[0] == 5
    for epoch in epochs:
        assert len({tuple(targets) for targets in epoch}) == len(epoch) == 9
    assert epochs[0] != epochs[1]
    assert {row[3] for row in mine[1:] if row != "end"} == {-1}  # gather_for_metrics cuts nothing off


def _epochs(stream: list[Any]) -> Iterator[list[list[float]]]:
    """Yield each epoch's targets."""
    epoch: list[list[float]] = []
    for row in stream[1:]:
        if row == "end":
            yield epoch
            epoch = []
        else:
            epoch.extend(row[0])


@pytest.mark.long
def test_accelerate_may_ask_one_ahead_of_a_device(launch: Launch) -> None:
    """Buffers of a device are not overwritten while Accelerate holds a batch back."""
    for rank in launch.ranks:
        accelerated = rank["accelerate"]
        assert accelerated["device"] == accelerated["streams"]["default, drop_last=False"]["torch"]


@pytest.mark.long
def test_accelerate_goes_on_where_a_job_ended(launch: Launch) -> None:
    """A prepared loader's state leads to the batches that were to come, in a later epoch too."""
    for rank in launch.ranks:
        for resumed in rank["accelerate"]["resumed"]:
            assert resumed["parts"] == resumed["whole"]


@pytest.mark.long
def test_accelerate_keeps_a_loaders_own_arguments(launch: Launch) -> None:
    """Transform, staging and threads last through the preparation, and a second one changes nothing."""
    for rank in launch.ranks:
        kept = rank["accelerate"]["kept"]
        assert kept.pop("batches") > 0
        assert kept == {
            "kind": "Own",
            "threads": 3,
            "staging": "64MiB",
            "keep": 2,  # Accelerate holds one batch back
            "dtype": "torch.float32",
            "is_same": True,
            "is_instance": True,
        }


@pytest.mark.long
def test_accelerate_is_refused_what_it_would_get_wrong(launch: Launch) -> None:
    """What would lose the loader, or give ranks of a group other samples, is an error that says what to do."""
    expected = [
        "accelerator.prepare: found a voxload.DataLoader over a VolumeDataset; call voxload.loader.accelerate.prepare",
        "dispatch_batches: found True",
        "batch_size: found None",
        "grid of the VolumeDataset: found 4 ranks, expected Accelerate's 2 processes",
        "split_batches: found a sampler that deals samples to groups already",
    ]
    for rank in launch.ranks:
        for found, start in zip(rank["accelerate"]["errors"], expected, strict=True):
            assert found.startswith(start)


@pytest.mark.long
def test_lightning_makes_a_loader_anew_with_all_its_arguments(launch: Launch) -> None:
    """The trainer's own sampler is in a loader of our class with everything else that was given."""
    for rank in launch.ranks:
        given = rank["lightning"]["given"]
        assert given.pop("batches") == 2 * 3
        assert given == {"is_new": True, "kind": "DataLoader", "sampler": "DistributedSampler", "kept": True}


@pytest.mark.long
def test_lightning_makes_a_hooks_loader_anew(launch: Launch) -> None:
    """A loader that the module makes, with positional arguments, trains as torch's does."""
    for rank in launch.ranks:
        torchs, ours = rank["lightning"]["hook"].values()
        assert ours == torchs
        assert ours["is_new"]
        assert ours["sampler"] == "DistributedSampler"


@pytest.mark.long
def test_lightning_puts_no_sampler_in_front_of_groups(launch: Launch) -> None:
    """With a spatial grid the loader is used as it is, and trains as torch's with a sampler over groups."""
    for rank in launch.ranks:
        spatial = rank["lightning"]["spatial"]
        assert spatial["is_given"]
        assert spatial["voxload"] == spatial["torch"]
    assert launch.ranks[0]["lightning"]["spatial"] == launch.ranks[1]["lightning"]["spatial"]


@pytest.mark.long
def test_lightning_goes_on_in_the_middle_of_an_epoch(launch: Launch) -> None:
    """A checkpoint of two ranks has the loader's place: no batch is repeated, and the losses are the same."""
    for rank in launch.ranks:
        resumed = rank["lightning"]["resumed"]
        assert len(resumed["whole"]) == 6
        assert resumed["rest"] == resumed["whole"][4:]


@pytest.mark.long
def test_lightning_predicts_each_sample_once(launch: Launch) -> None:
    """The trainer's wrapped batch sampler gives each rank what torch's loader gives it."""
    parts = []
    for rank in launch.ranks:
        torchs, ours = rank["lightning"]["predicted"].values()
        assert ours == torchs
        parts += [tuple(target) for batch in ours for target in batch]
    assert len(set(parts)) == len(parts) == 9


@pytest.mark.long
def test_monais_array_transforms_change_fields(launch: Launch) -> None:
    """Chains on one field give MONAI's own batches; chains that draw, those of torch's loader from the same state."""
    assert launch.ranks[0]["monai"] == {"fixed": True, "drawn": True, "differs": True, "type": "MetaTensor"}
