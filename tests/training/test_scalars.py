"""Scalars: TensorBoard's logs have each epoch once, and a missing tensorboard is said before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from voxload.errors import UsageError
from voxload.training.result import Epoch
from voxload.training.tensorboard import Scalars, _figures, check_tensorboard

REGRESSION = Epoch(1.0, 0.9, (0.4, 0.5), 2.0)
SEGMENTATION = Epoch(0.5, 0.6, (), 2.0, (0.5, 0.7))


def test_without_tensorboard_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"--tensorboard: found no package tensorboard.*pip install tensorboard"):
        check_tensorboard()
    with pytest.raises(UsageError, match="pip install tensorboard"):
        Scalars("logs", ("a",), behind=0)


def test_figures_have_the_names_of_what_is_predicted() -> None:
    """Errors by target, Dice by class and its mean."""
    assert _figures(REGRESSION, ("a", "b")) == {
        "loss/training": 1.0,
        "loss/held-out": 0.9,
        "seconds": 2.0,
        "MAE/a": 0.4,
        "MAE/b": 0.5,
    }
    found = _figures(SEGMENTATION, ("1", "2"))
    assert {name: value for name, value in found.items() if name.startswith("Dice")} == {
        "Dice/class 1": 0.5,
        "Dice/class 2": 0.7,
        "Dice/mean": pytest.approx(0.6),
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_resumed_log_goes_on(tmp_path: Path) -> None:
    """What a killed run wrote of an epoch that is run again is not shown."""
    reader: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for behind, numbers in ((0, (1, 2, 3)), (1, (2, 3, 4))):
        log = Scalars(str(tmp_path), ("a", "b"), behind=behind)
        for number in numbers:
            log.add(number, REGRESSION, rate=0.1 * (behind + 1))
        log.close()
    found = reader.EventAccumulator(str(tmp_path)).Reload()
    rates = [(event.step, round(event.value, 3)) for event in found.Scalars("learning rate")]
    assert rates == [(1, 0.1), (2, 0.2), (3, 0.2), (4, 0.2)]
