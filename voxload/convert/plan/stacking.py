"""Stacking: the variables of a sample that the caller names become the channels of one cube."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from voxload.convert.manifest import Variable
from voxload.convert.plan.finding import FoundCube
from voxload.convert.sources.stacked import StackedSource
from voxload.errors import NotFoundError, UsageError
from voxload.files.names import safe_dataset
from voxload.text import listed

Stacks = Mapping[str, Sequence[str]]
"""Name of a volume to the variables that are its channels, in their order."""


def stack_cubes(cubes: Sequence[FoundCube], stacks: Stacks) -> list[FoundCube]:
    """Return cubes with those that are variables of a stack in one; all others as they were, by sample and name.

    A sample that has none of a stack's variables has no such volume.

    Parameters
    ----------
    cubes
        What was found, with the variables that it is.
    stacks
        What the caller wants.

    Raises
    ------
    NotFoundError
        When a sample has some variables of a stack and lacks one, or when no sample has any.
    UsageError
        When variables differ in extents or type, or a sample has a volume of a stack's name besides.
    """
    if not stacks:
        return list(cubes)
    _check_there(cubes, stacks)
    of_sample: defaultdict[str, list[FoundCube]] = defaultdict(list)
    for found in cubes:
        of_sample[found.sample].append(found)
    return [one for sample in sorted(of_sample) for one in _of_sample(sample, of_sample[sample], stacks)]


def _check_there(cubes: Sequence[FoundCube], stacks: Stacks) -> None:
    """Refuse a stack of which nothing was found."""
    known = {found.variable for found in cubes}
    for name, variables in stacks.items():
        if not known & set(variables):
            raise NotFoundError(
                f"--stack {name}",
                found=f"none of {listed(variables)}",
                expected=f"names of volumes or files, such as {listed(sorted({one.cube.dataset for one in cubes}))}",
                remedy="name the variables as they are called there; --dry-run without --stack lists all volumes",
            )


def _of_sample(sample: str, cubes: Sequence[FoundCube], stacks: Stacks) -> list[FoundCube]:
    """Return the cubes of one sample."""
    variables = {found.variable: found for found in cubes if found.variable}
    stacked = {name: [variables[one] for one in wanted if one in variables] for name, wanted in stacks.items()}
    taken = {found.variable for members in stacked.values() for found in members}
    left = [found for found in cubes if found.variable not in taken]
    for name, members in stacked.items():
        _check_whole(members, wanted=stacks[name], there=cubes)
        clash = next((found for found in left if members and found.cube.dataset == safe_dataset(name)), None)
        if clash is not None:
            raise UsageError(
                f"--stack {name}",
                found=f"a volume {name!r} of sample {sample!r} besides, in {clash.files[0].name}",
                expected="a name of its own",
                remedy="give the stack another name, as by --stack NAME=vx,vy,vz",
            )
    new = [_stacked(sample, name, members) for name, members in stacked.items() if members]
    return sorted([*left, *new], key=lambda found: found.cube.dataset)


def _check_whole(members: Sequence[FoundCube], *, wanted: Sequence[str], there: Sequence[FoundCube]) -> None:
    """Refuse a sample that has some variables of a stack and not all."""
    absent = [one for one in wanted if one not in {found.variable for found in members}]
    if members and absent:
        names = sorted(found.cube.dataset for found in there)
        raise NotFoundError(
            f"sample {members[0].sample!r} ({members[0].files[0].name})",
            found=f"no variable {absent[0]!r} beside {listed(names)}",
            expected=f"all of {listed(wanted)}",
            remedy="add it, leave it out of --stack, name it with --dataset too, or move the sample away",
        )


def _stacked(sample: str, name: str, members: Sequence[FoundCube]) -> FoundCube:
    source = StackedSource.of(
        safe_dataset(name), {found.variable: found.source for found in members}, subject=f"sample {sample!r}"
    )
    files = dict.fromkeys(file for found in members for file in found.files)
    cube = replace(source.describe(), attributes={})  # the variables have theirs
    return FoundCube(sample, cube, source, tuple(files), variables=tuple(_variables(members)))


def _variables(members: Sequence[FoundCube]) -> Iterator[Variable]:
    """Yield what the manifest says of each variable."""
    first = 0
    for found in members:
        cube = found.source.describe()  # whose name is the file's own
        channels = cube.volume_shape[0]
        yield Variable(
            found.variable,
            found.files,
            safe_dataset(cube.dataset),
            cube.part,
            cube.order.axes,
            first,
            channels,
            cube.attributes,
        )
        first += channels
