"""Validations: networks that are run beside what is said of them."""

from __future__ import annotations

from datetime import date
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from voxload.plan.calibration.run import calibrate
from voxload.plan.platform import files
from voxload.plan.validation.run import Compared, ValidationCase, kendall, predict, validate

SAMPLE = (1, 32, 32, 32)


def test_orders_are_compared_pair_by_pair() -> None:
    """Beside a count of all pairs; ties of both count for neither."""
    draw = Random(0)
    pairs = [(float(draw.randrange(6)), float(draw.randrange(6))) for _ in range(20)]
    signs = [((a > c) - (a < c), (b > d) - (b < d)) for (a, b), (c, d) in combinations(pairs, 2)]
    ones, others = (sum(1 for pair in signs if pair[place]) for place in (0, 1))
    assert kendall(pairs) == pytest.approx(sum(a * b for a, b in signs) / (ones * others) ** 0.5)
    assert kendall([(1, 1), (2, 2), (3, 3)]) == 1.0
    assert kendall([(1, 3), (2, 2), (3, 1)]) == -1.0


@pytest.mark.long
def test_what_is_said_is_near_what_is_measured(tmp_path: Path) -> None:
    """Of a U-Net on one process and two, in all ways; memory to a tenth; times are there, and of the right size."""
    path = tmp_path / "machine.toml"
    files.write(calibrate(ranks=1, seconds=20.0), path, name="here", day=date(2026, 1, 2))
    platform = files.load(str(path))
    model = "tests.plan.validation.nets:small_unet"
    cases = [
        ValidationCase(model, SAMPLE, spatial, groups, samples)
        for spatial, groups, samples in (((1, 1, 1), 1, 2), ((2, 1, 1), 1, 1), ((1, 1, 1), 2, 1))
    ]
    cases += [
        ValidationCase(model, SAMPLE, (1, 1, 1), 2, 1, wrapper="fsdp"),
        ValidationCase(model, SAMPLE, (1, 1, 1), 2, 1, wrapper="fsdp-modules"),
        ValidationCase(model, SAMPLE, (2, 1, 1), 1, 1, recompute=("encoder.0", "bottom", "decoder.1")),
        ValidationCase(model, SAMPLE, (1, 1, 1), 1, 3, stages=2, microbatches=3),
    ]
    heard: list[Compared] = []
    found = validate([(case, predict(case, platform)) for case in cases], hear=heard.append)
    assert [each.case for each in found] == cases
    assert heard == found
    for each in found:
        assert abs(each.memory_error) < 0.1
        assert 0.1 < each.predicted.time.total / each.measured.total < 10
