"""Calibrations: what is fitted to what was measured, what is measured at all, and a real one."""

from __future__ import annotations

from collections import Counter
from datetime import date
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from voxload.errors import UsageError
from voxload.plan.calibration.measuring import MessagePoint, Timed, kernel_points, overheads, time_step
from voxload.plan.calibration.networks import cases, convolutions, volumes
from voxload.plan.calibration.run import calibrate, fitted, ordered
from voxload.plan.calibration.sharing import StepPoint, SumPoint, sharing
from voxload.plan.platform import files
from voxload.plan.platform.calibration import Sharing
from voxload.plan.trace.operation import Phase


def test_messages_are_a_start_and_seconds_a_byte() -> None:
    """Found again from noisy ones, whatever else was moved; none is below zero."""
    noise = np.random.default_rng(0)
    points = [
        MessagePoint(sent, (moved, moved), (1e-4 + 2e-9 * sent + 1e-10 * moved) * float(np.exp(noise.normal(0, 0.1))))
        for sent in (100, 10_000, 1_000_000)
        for moved in (10_000, 1_000_000, 100_000_000)
        for _ in range(10)
    ]
    latency, sent = fitted(points, lambda joined: 1e-10 * joined[0])
    assert latency == pytest.approx(1e-4, rel=0.15)
    assert sent == pytest.approx(2e-9, rel=0.15)
    assert min(fitted([MessagePoint(1, (1, 1), 1.0), MessagePoint(10, (1, 1), 0.5)], lambda _: 2.0)) >= 0
    with pytest.raises(UsageError, match="2 ranks or more"):
        fitted([], lambda _: 0.0)


def test_convolutions_are_those_that_networks_have() -> None:
    """The same whenever they are drawn; of all kernels, padded or not, with strides and a gradient of the input."""
    found = list(islice(convolutions(1e9, 7), 300))
    assert found == list(islice(convolutions(1e9, 7), 300))
    assert max(each.work for each in found) <= 1e9
    assert {each.kernel for each in found} >= {1, 2, 3, 5}
    for name in ("is_transposed", "is_first", "stride", "batch", "padded"):
        assert min(Counter(getattr(each, name) for each in found).values()) >= 3
    assert max(each.channels for each in found) > 200
    assert max(prod(each.extents) for each in found) > 100_000


def test_networks_are_at_most_as_large_as_asked() -> None:
    """Small ones first; volumes the largest first."""
    works = [each.work for each in cases(10**7)]
    assert works == sorted(works)
    assert works[-1] <= 10**7
    sizes = [each.channels * prod(each.extents) for each in volumes(2**20) if each.kind == "pointwise"]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 2**20


def test_what_ranks_wait_is_told_from_whole_steps() -> None:
    """Steps of known parts: how much longer ranks compute together, an exchange, a sum, and gradients."""
    shares = {2: (1.0, 1.0, 1.0, 1e-3, 2e-3, 5e-3, 0.02), 4: (2.5, 0.9, 1.1, 4e-3, 8e-3, 20e-3, 0.0)}
    counts = ((0.2, 7, 9, 0.9), (0.05, 11, 0, 1.3), (0.02, 23, 0, 2.0), (0.01, 0, 24, 0.4), (0.03, 5, 27, 3.0))
    steps = {}
    for ranks, (computing, blocks, replicas, latency, sums, gradients, jitter) in shares.items():
        steps[ranks] = [
            StepPoint(
                computing * apart,
                blocks * computing * apart
                + latency * messages
                + sums * totals
                + jitter * roots
                + 1e-9 * 10**6
                + 1e-5 * messages,
                replicas * computing * apart + gradients + sums + jitter * (computing * apart) ** 0.5,
                messages,
                totals,
                10**6,
                roots,
                ((10**6, 10**6),) * messages,
            )
            for apart, messages, totals, roots in counts
        ]
    for ranks, (_, blocks, replicas, latency, sums, gradients, jitter) in shares.items():
        points = [SumPoint(nbytes, 1e-4 + 2e-9 * nbytes) for nbytes in (4, 10**4, 10**7)]
        known: dict[str, Any] = {"per_byte": 1e-9, "copying": lambda _: 1e-5, "sums": points, "is_crowded": ranks > 2}
        found = sharing(ranks, [steps[ranks]] * ranks, **known)
        assert (found.blocks, found.latency, found.sum_latency) == pytest.approx((blocks, latency, sums))
        assert (found.replicas, found.gradients) == pytest.approx((replicas, gradients))
        assert found.jitter == pytest.approx(jitter)
        assert found.sum_seconds_per_byte == pytest.approx(2e-9)
        assert found.error < 1e-6


def test_what_only_a_disturbed_job_finds_is_not_believed() -> None:
    """One rank is no slower than two on two cores, four lose no more than eight do, and none gain by sharing."""
    found = ordered([Sharing(1, 1.14), Sharing(2, 1.0), Sharing(4, 2.63), Sharing(8, 4.2)], 2)
    assert [each.computing for each in found] == pytest.approx([1.0, 1.0, 2.1, 4.2])
    found = ordered([Sharing(1, 0.9), Sharing(2, 1.0), Sharing(4, 1.7), Sharing(8, 4.4)], 2)
    assert [each.computing for each in found] == pytest.approx([0.9, 1.0, 2.0, 4.4])


def _timed() -> Timed:
    model = nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU())
    optimizer = torch.optim.Adam(model.parameters())
    # Another object than what runs, so that steps in which nobody looks are timed too.
    return time_step(nn.Sequential(*model), torch.randn(1, 2, 8, 8, 8), optimizer, model, rounds=2)


def test_every_operation_of_a_step_is_timed() -> None:
    """Each in its part of the step, and the step itself beside them."""
    step = _timed()
    phases = {operation.phase for operation, _ in step.operations}
    assert phases == set(Phase)
    assert all(seconds > 0 for _, seconds in step.operations)
    assert set(step.parts) == set(Phase)
    points = kernel_points([step, step], "cpu")
    kinds = {each.kind for each in points}
    assert {"aten.convolution Slow3d", "aten.convolution_backward Slow3d", "aten.relu"} <= kinds
    assert all(len(each.points) == len(set(each.points)) for each in points)
    assert set(overheads([step])) == set(Phase)


def test_one_of_several_processes_calibrates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would start all of them."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="without torchrun"):
        calibrate(seconds=5)


@pytest.mark.long
def test_this_machine_is_measured(tmp_path: Path) -> None:
    """By real processes; its file says enough for a plan, and among how many ranks messages went."""
    heard: list[float] = []
    found = calibrate(ranks=1, seconds=10.0, hear=heard.append)
    assert heard
    assert [each.ranks for each in found.sharing] == [1, 2, 4]
    assert all(each.computing > 0 and each.error < 1 for each in found.sharing)
    assert all(each.blocks > 0 and each.replicas > 0 for each in found.sharing)
    path = tmp_path / "machine.toml"
    files.write(found, path, name="here", day=date(2026, 1, 2))
    assert files.load(str(path)).calibration is not None
