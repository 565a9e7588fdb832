"""Trust: which peers are still asked."""

from __future__ import annotations


class Trust:
    """Counts the bad answers of peers; one that is distrusted stays so, for nothing tells that it was cured."""

    def __init__(self, strikes: int) -> None:
        self._limit = strikes
        self._strikes: dict[int, int] = {}
        self.lost: set[int] = set()
        """Groups that are asked for nothing more."""

    def good(self, group: int) -> None:
        """Note a good answer: only bad ones in a row count."""
        self._strikes.pop(group, None)

    def strike(self, group: int) -> bool:
        """Note a bad answer; True where it was one too many."""
        self._strikes[group] = self._strikes.get(group, 0) + 1
        return self._strikes[group] >= self._limit and self.lose(group)

    def lose(self, group: int) -> bool:
        """Distrust a peer; False where it was distrusted before."""
        is_news = group not in self.lost
        self.lost.add(group)
        return is_news
