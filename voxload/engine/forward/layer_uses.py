"""LayerUses: which call of a recording uses the axes of the grid for what, as a plan says; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from voxload.engine.arithmetic.split_plan import IN_SPACE, SplitPlan, Uses
from voxload.engine.forward.recording import Call, Recording, name_of
from voxload.engine.forward.rule import LayerSplit
from voxload.engine.forward.rules.channels import LINEAR
from voxload.engine.forward.rules.windows import CONVOLUTIONS, TRANSPOSED
from voxload.errors import UsageError

WEIGHTED = frozenset[object]([*CONVOLUTIONS, *TRANSPOSED, *LINEAR])
"""Functions whose weights may be cut."""


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A plan of layers on a grid."""

    plan: SplitPlan
    """Uses by the paths of modules."""
    mesh: tuple[int, ...]
    """Blocks of a sample group, per axis of the grid."""


class LayerUses:
    """Uses of the axes, call by call.

    Parameters
    ----------
    recording
        What the forward asks of torch.
    split
        The plan.
    min_width
        An axis cuts no volume whose blocks would have fewer voxels than this.

    Raises
    ------
    UsageError
        Where the plan names a path at which no layer with weights is.
    """

    def __init__(self, recording: Recording, split: PlannedSplit, min_width: int) -> None:
        plan = split.plan
        self._calls, self._plan, self._mesh, self._min_width = recording.calls, plan, split.mesh, min_width
        self._users = recording.users()
        met = {plan.found(call.path)[0] for call in recording.calls if call.function in WEIGHTED}
        if unmet := [path for path, uses in plan.layers if path not in met and uses != IN_SPACE]:
            layers = dict.fromkeys(call.path for call in recording.calls if call.function in WEIGHTED)
            raise UsageError(
                f"plan of layer {unmet[0]!r}",
                found="no convolution or dense layer there of which the plan does not say more elsewhere",
                expected=f"a path of one, or of a module around it: {', '.join(map(repr, layers))}",
            )

    def of(self, index: int) -> LayerSplit:
        """Return the uses of a call; without weights it leaves what it takes where it is, in space for what is new."""
        call = self._calls[index]
        if call.function not in WEIGHTED:
            return LayerSplit(IN_SPACE, self._mesh, min_width=self._min_width)
        return LayerSplit(self._plan.uses(call.path), self._mesh, self._behind(index), self._min_width)

    def _behind(self, index: int) -> Uses:
        """Return the uses of the first layer with weights that takes what a call gives."""
        found = layer_behind(self._calls, self._users, index)
        return IN_SPACE if found is None else self._plan.uses(self._calls[found].path)


def layer_behind(calls: Sequence[Call], users: Mapping[int, Sequence[int]], index: int) -> int | None:
    """Return the first layer with weights that takes what a call gives, at whatever distance; None where none does."""
    waiting = [value.number for value in calls[index].made]
    seen = set(waiting)
    while waiting:
        for user in users.get(waiting.pop(0), ()):
            call = calls[user]
            if user <= index:
                continue
            if call.function in WEIGHTED:
                return user
            fresh = [value.number for value in call.made if value.number not in seen]
            waiting += fresh
            seen.update(fresh)
    return None


def not_split(call: Call, split: LayerSplit, reason: str) -> UsageError:
    """Return the refusal of a layer that cannot be split as a plan says."""
    said = ", ".join(use.value for use in split.uses)
    return UsageError(
        f"{name_of(call.function)} in {call.where}",
        found=f"a plan that uses the axes d, h, w of the grid {split.mesh} for {said}: {reason}",
        expected="features and groups that can be dealt out so",
        remedy="plan it otherwise, for one with 'space' or 'whole' along an axis",
    )
