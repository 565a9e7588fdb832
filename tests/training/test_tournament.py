"""Populations: trainers that learn from parts of the data, meet, are stopped, killed, and go on."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ranks import run_ranks
from tests.training.stops import regression, train_on_ranks
from voxload.errors import NotFoundError, UsageError
from voxload.loader.cache import Cache
from voxload.parallel.tournament.tournament import Rules, Verdict
from voxload.training.checkpoint import CHECKPOINT
from voxload.training.data import part_samples
from voxload.training.plan import Optimisation, TrainingPlan
from voxload.training.population.genealogy import ancestors
from voxload.training.population.jobs import POPULATION
from voxload.training.population.rounds import (
    KEPT,
    common_round,
    folder_of,
    forget_rounds,
    round_folder,
    rounds_in,
    source_of,
)
from voxload.training.population.seat import Seat, plan_of, source_for
from voxload.training.result import WEIGHTS, TrainingResult

RECIPE = Optimisation(epochs=2, batch_size=1, dropout=0.2)
RULES = Rules(2, held_out=0.25, with_optimizer=True, mutate=True)


def _plan(catalog: Path, output: Path, **changes: Any) -> TrainingPlan:
    words = {"optimisation": RECIPE, "trainers": 3, "tournament": RULES, "checkpoint_every": 0}
    return replace(regression(str(catalog), output), **{**words, **changes})


def _results(plan: TrainingPlan) -> list[TrainingResult]:
    return [
        TrainingResult.from_json((Path(folder_of(plan.output, trainer)) / "result.json").read_text())
        for trainer in range(plan.trainers)
    ]


def _weights(plan: TrainingPlan) -> list[dict[str, torch.Tensor]]:
    folders = [Path(folder_of(plan.output, trainer)) for trainer in range(plan.trainers)]
    return [torch.load(folder / WEIGHTS, weights_only=True) for folder in folders]


def _same(one: list[dict[str, torch.Tensor]], other: list[dict[str, torch.Tensor]]) -> bool:
    return all(torch.equal(own[name], theirs[name]) for own, theirs in zip(one, other, strict=True) for name in own)


def test_a_population_goes_on_where_it_was_stopped(catalog: Path, tmp_path: Path) -> None:
    """Bit for bit; each trainer learns from its part, and one that has lost its folder goes on with another's model."""
    plan = _plan(catalog, tmp_path / "whole")
    best, _ = train_on_ranks(plan, 3)
    results = _results(plan)
    assert [len(result.verdicts) for result in results] == [3] * 3
    assert [result.training_samples for result in results] == [3] * 3
    assert not any(verdict.is_forfeit for result in results for verdict in result.verdicts)
    met = [(verdict.number, trainer, verdict.partner) for trainer in range(3) for verdict in results[trainer].verdicts]
    assert {(number, other, one) for number, one, other in met} == set(met)
    for result in results:
        for verdict in result.verdicts:
            is_better = verdict.own is not None and verdict.other is not None and verdict.other < verdict.own
            assert verdict.is_adopted == is_better
            assert (verdict.rate != 1.0) == is_better
    losses = [result.epochs[-1].validation_loss for result in results]
    assert best.epochs[-1].validation_loss == min(losses)
    said = json.loads((Path(plan.output) / POPULATION).read_text())
    assert said["best"] == losses.index(min(losses))
    assert said["lost"] == {}
    again = replace(plan, output=str(tmp_path / "again"), resume=True)
    shutil.copytree(plan.output, again.output)
    for trainer in range(3):
        assert rounds_in(folder_of(plan.output, trainer))[-2:] == [2, 3]
        shutil.rmtree(round_folder(folder_of(again.output, trainer), 3))
    train_on_ranks(again, 3)
    assert _same(_weights(again), _weights(plan))
    assert [result.verdicts for result in _results(again)] == [result.verdicts for result in results]
    shutil.rmtree(round_folder(folder_of(again.output, 0), 3))
    shutil.rmtree(folder_of(again.output, 1))
    shutil.rmtree(round_folder(folder_of(again.output, 2), 3))
    train_on_ranks(again, 3)
    assert [len(result.epochs) for result in _results(again)] == [2] * 3


@pytest.mark.long
def test_blocks_and_groups_are_a_trainer_as_well(catalog: Path, tmp_path: Path) -> None:
    """Two trainers of two blocks meet as two of one rank do."""
    recipe = replace(RECIPE, dropout=0.0, dtype="float64")
    plans = [
        _plan(catalog, tmp_path / name, trainers=2, spatial=spatial, optimisation=recipe)
        for name, spatial in (("whole", (1, 1, 1)), ("cut", (1, 2, 1)))
    ]
    for plan, ranks in zip(plans, (2, 4), strict=True):
        train_on_ranks(plan, ranks)
    for one, other in zip(*map(_results, plans), strict=True):
        assert [verdict.is_adopted for verdict in one.verdicts] == [verdict.is_adopted for verdict in other.verdicts]
        assert one.epochs[-1].validation_loss == pytest.approx(other.epochs[-1].validation_loss, rel=1e-6)


def test_a_killed_trainer_forfeits(catalog: Path, tmp_path: Path) -> None:
    """The others end, and say that it is lost."""
    plan = _plan(catalog, tmp_path / "run", trainers=2, tournament=replace(RULES, patience=1.0))
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    ended = run_ranks(Path(__file__).parent / "rank_killed.py", "1", "2", path, ranks=2, ends_together=False)
    assert ended[0].status == 0, ended[0].errors
    assert ended[1].status != 0
    (result,) = [TrainingResult.from_json((Path(folder_of(plan.output, 0)) / "result.json").read_text())]
    # On a machine that is busy the first round may be one, too.
    assert [verdict.is_forfeit for verdict in result.verdicts[1:]] == [True] * 3
    assert len(result.epochs) == 2
    said = json.loads((Path(plan.output) / POPULATION).read_text())
    assert (said["best"], list(said["lost"])) == (0, ["1"])


def test_what_does_not_fit_is_refused(catalog: Path, tmp_path: Path) -> None:
    """Ranks, samples, checkpoints between rounds, and rules."""
    with pytest.raises(UsageError, match=r"4 trainers: found 7 samples.*expected 8 or more"):
        part_samples([str(each) for each in range(7)], trainers=4, trainer=0, held_out=0.1, seed=0)
    with pytest.raises(UsageError, match="choose --tournament-every"):
        _plan(catalog, tmp_path, checkpoint_every=2)
    with pytest.raises(UsageError, match="expected pairs or truncation"):
        Rules(selection="none")
    with pytest.raises(UsageError, match="some seconds"):
        Rules(patience=math.nan)


@given(st.integers(8, 200), st.integers(1, 4), st.floats(0.01, 0.49), st.integers(0, 5))
def test_parts_are_equal_and_share_nothing(count: int, trainers: int, held_out: float, seed: int) -> None:
    """All samples are somebody's, and trainers take as many steps."""
    ids = [f"s{number:03}" for number in range(count)]
    parts = [
        part_samples(ids, trainers=trainers, trainer=each, held_out=held_out, seed=seed) for each in range(trainers)
    ]
    assert len({len(part.training) for part in parts}) == 1
    assert all(part.contest and part.training for part in parts)
    assert sorted(sample for part in parts for sample in (*part.training, *part.contest)) == ids


def test_trainers_of_a_node_share_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were started one by one all of it; under a launcher as many as have ranks here."""
    plan = TrainingPlan("c.parquet", "out", trainers=4, cache=Cache(memory=4000, disk="tier", disk_size=8000))
    monkeypatch.setenv("VOXLOAD_TRAINER", "1")
    own = plan_of(plan, 1).cache
    assert own is not None
    assert (own.memory_bytes, own.disk_bytes, str(own.folder)) == (1000, 2000, "tier/trainer-1")
    monkeypatch.delenv("VOXLOAD_TRAINER")
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    own = plan_of(plan, 1).cache
    assert own is not None
    assert own.memory_bytes == 2000
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    own = plan_of(plan, 3).cache
    assert own is not None
    assert own.memory_bytes == 1000


def test_all_go_on_from_the_last_round_that_they_have(tmp_path: Path) -> None:
    """One without a folder from another's; where there is none in common, it is said whose folder is in the way."""

    def leave(trainer: int, *rounds: int) -> None:
        for number in rounds:
            folder = round_folder(folder_of(str(tmp_path), trainer), number)
            folder.mkdir(parents=True)
            (folder / CHECKPOINT).touch()

    with pytest.raises(NotFoundError, match="checkpoints of 3 trainers"):
        common_round(str(tmp_path), 3)
    leave(0, 3, 4, 5)
    leave(1, 2, 3, 4)
    assert common_round(str(tmp_path), 3) == 4
    assert source_of(str(tmp_path), 2, 3, 4) == round_folder(folder_of(str(tmp_path), 0), 4)
    assert source_of(str(tmp_path), 1, 3, 4) == round_folder(folder_of(str(tmp_path), 1), 4)
    leave(2, 0, 1)
    with pytest.raises(UsageError, match=r"trainer 2 from 0 to 1.*remove .*trainer-2"):
        common_round(str(tmp_path), 3)
    forget_rounds(folder_of(str(tmp_path), 0), before=4)
    assert rounds_in(folder_of(str(tmp_path), 0)) == [4, 5]
    leave(0, *range(6, 6 + KEPT))
    forget_rounds(folder_of(str(tmp_path), 0), before=0)
    assert len(rounds_in(folder_of(str(tmp_path), 0))) == KEPT


def test_models_are_followed_through_those_that_kept_them(catalog: Path, tmp_path: Path) -> None:
    """Also where both change in a round."""
    result, _ = train_on_ranks(_plan(catalog, tmp_path / "run", trainers=1, optimisation=replace(RECIPE, epochs=1)), 1)

    def of(*partners: int | None) -> TrainingResult:
        verdicts = [
            Verdict(number, trainer or 0, 1.0, 0.5, is_adopted=trainer is not None)
            for number, trainer in enumerate(partners, 1)
        ]
        return replace(result, verdicts=tuple(verdicts))

    assert ancestors({0: of(1, None, 2), 1: of(0, 2), 2: of(None, None, 5)}) == {
        0: [0, 1, 1, 2],
        1: [1, 0, 2, 2],
        2: [2, 2, 2, 5],
    }


class _Meeting(dict[str, bytes]):
    """Stands for a store in a process without another: what is set is there."""

    def set(self, key: str, value: str) -> None:
        """Keep a word."""
        self[key] = value.encode()

    def wait(self, keys: list[str], _: object) -> None:
        """Fail at once where torch's would after its time."""
        if not all(key in self for key in keys):
            raise RuntimeError("timed out")


def test_nobody_waits_for_a_first_trainer_that_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    """It says so, and each other one is told."""
    plan = TrainingPlan("c.parquet", str(tmp_path), trainers=2, resume=True)
    meeting = _Meeting()
    with pytest.raises(NotFoundError, match="checkpoints of 2 trainers"):
        source_for(plan, Seat(0, 1, 0, meeting))
    with pytest.raises(UsageError, match="see what the first trainer says"):
        source_for(plan, Seat(0, 1, 1, meeting))
    with pytest.raises(UsageError, match="no word of the first trainer"):
        source_for(plan, Seat(0, 1, 1, _Meeting()))
