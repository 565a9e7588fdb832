"""Networks of libraries, split by one line: on two ranks they train, and decode, as in one process."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.examples.cases import EXAMPLES
from tests.support.ranks import printed_by_ranks

NEEDS = {
    "diffusion_unet": ("monai", "einops"),
    "fno": ("neuralop",),
    "monai_unet": ("monai",),
    "nnunet": ("dynamic_network_architectures",),
    "video_vae": ("diffusers",),
}
"""What each imports."""
NUMBER = re.compile(r"(?:loss|mean square) ([\d.e+-]+)")
ROUNDING = 1e-5
"""Of float32, over a few steps."""


def test_every_example_is_run() -> None:
    """None is left out."""
    assert sorted(path.stem for path in (EXAMPLES / "split").glob("*.py")) == sorted(NEEDS)


@pytest.mark.long
@pytest.mark.parametrize("name", NEEDS)
def test_two_ranks_do_what_one_does(name: str) -> None:
    """Losses of all steps, or the video, are those of one process, to rounding; and steps differ."""
    missing = [module for module in NEEDS[name] if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    path = EXAMPLES / "split" / f"{name}.py"
    one, two = (
        list(map(float, NUMBER.findall(printed_by_ranks("tests.examples.rank_split", path, ranks=ranks))))
        for ranks in (1, 2)
    )
    assert len(set(one)) == len(one) >= 2
    assert two == pytest.approx(one, rel=ROUNDING)
