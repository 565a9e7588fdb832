"""Numbers of exchanges: compiled graphs hold numbers and tensors, and operators find the exchange by its number."""

from __future__ import annotations

from itertools import count
from weakref import WeakValueDictionary

from voxload.engine.exchange.protocol import Exchange
from voxload.errors import InternalError

_EXCHANGES: WeakValueDictionary[int, Exchange] = WeakValueDictionary()
_NEXT = count(1)


def registered(exchange: Exchange) -> int:
    """Return a new number for `exchange`, under which `exchange_at` finds it as long as it lives. Thread-safe."""
    key = next(_NEXT)
    _EXCHANGES[key] = exchange
    return key


def exchange_at(key: int) -> Exchange:
    """Return the exchange that has this number; raises InternalError when it is gone."""
    exchange = _EXCHANGES.get(key)
    if exchange is None:
        raise InternalError("a split network", found="an exchange that is gone", remedy="keep the model's own alive")
    return exchange
