"""State: what the modules of a network hold, and whether a ``forward`` changes it.

A split network does not run ``forward``, so what that keeps on the way, such as the last activation or a count of
calls, would stay as it was when it was traced.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn


class State:
    """The attributes, layers and buffers of a network's modules as they are now.

    Parameters
    ----------
    model
        The network.
    """

    def __init__(self, model: nn.Module) -> None:
        self._before = [
            (path, module, dict(vars(module)), {name: copy.copy(held) for name, held in _containers(module).items()})
            for path, module in model.named_modules()
        ]

    def restore(self) -> str | None:
        """Put back what was changed since; returns the path of the first that was, or None."""
        changed: list[str] = []
        for path, module, held, contents in self._before:
            now = vars(module)
            changed += [_join(path, name) for name in now if name not in held or now[name] is not held[name]]
            changed += [_join(path, name) for name in held if name not in now]
            now.clear()
            now.update(held)
            for name, content in contents.items():
                if not _same(now[name], content):
                    changed.append(_join(path, name))
                    _refill(now[name], content)
        return changed[0] if changed else None


def _containers(module: nn.Module) -> dict[str, Any]:
    return {name: held for name, held in vars(module).items() if isinstance(held, list | dict | set)}


def _same(one: Any, other: Any) -> bool:
    """Tell whether two containers of one kind hold the very same objects."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(value is other[key] for key, value in one.items())
    if isinstance(one, set):
        return bool(one == other)
    return len(one) == len(other) and all(value is each for value, each in zip(one, other, strict=True))


def _refill(container: Any, content: Any) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
