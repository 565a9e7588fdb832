"""Link into an environment what its voxload requires, some extras with it, and nothing else, from this environment.

To install it all once more takes as long as the first time, and proves no more: `pip check` sees what is missing.

    python .ci/requirements.py SITE-PACKAGES [EXTRA ...]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def main() -> None:
    """Raise where something required is not here."""
    target, extras = Path(sys.argv[1]), sys.argv[2:]
    (wheel,) = distributions(name="voxload", path=[str(target)])
    for found in _closure(wheel, extras):
        for name in {path.parts[0] for path in found.files or ()} - {".."}:  # no programs: the wheel calls none of them
            link = target / name
            if not link.is_symlink():  # a folder that several packages share
                link.symlink_to(Path(str(found.locate_file(name))).resolve(strict=True))


def _closure(wheel: Distribution, extras: Sequence[str]) -> Iterator[Distribution]:
    """Yield what a distribution requires here, and what that requires, with the extras that are asked for."""
    own = canonicalize_name(wheel.name)
    asked = [Requirement(f"{own}[{','.join(extras)}]")]
    seen: set[tuple[str, str]] = set()
    while asked:
        requirement = asked.pop()
        name = canonicalize_name(requirement.name)
        found = wheel if name == own else distribution(requirement.name)  # extras include others of its own
        if found is not wheel and (name, "") not in seen:
            yield found
        for extra in {"", *requirement.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                asked += _needs(found, extra)


def _needs(found: Distribution, extra: str) -> list[Requirement]:
    needs = (Requirement(text) for text in found.requires or ())
    return [each for each in needs if each.marker is None or each.marker.evaluate({"extra": extra})]


if __name__ == "__main__":
    main()
