"""How far a whole load is, from how far its stages are. Qt-free."""

from __future__ import annotations

_SHARES = {
    "fetch": 24.0,
    "read": 2.0,
    "expand": 6.0,
    "weights": 4.0,
    "convert": 6.0,
    "tokenizer": 1.0,
    "warm_up": 2.0,
}
"""The stages of ``ModelLoading`` in their usual order, and about how long each takes."""
_ORDER = list(_SHARES)


class LoadProgress:
    """``fraction``: of one load, from 0 to 1. It never falls.

    Which stages come, and whether one comes twice, depends on the model. So a stage that begins
    gets its share of what is left then; the rest is for those that may follow.
    """

    def __init__(self) -> None:
        self.fraction = 0.0
        self._stage = ""
        self._start = self._end = 0.0

    def tell(self, stage: str, fraction: float) -> None:
        """``fraction`` of ``stage``, from 0 to 1, is done. Other names than those known are passed
        over.
        """
        if stage not in _SHARES:
            return
        if stage != self._stage:
            self._begin(stage)
        now = self._start + (self._end - self._start) * min(fraction, 1.0)
        self.fraction = max(self.fraction, now)

    def _begin(self, stage: str) -> None:
        place = _ORDER.index(stage)
        # One that was before its time has not taken the share that it gets later.
        if self._stage and _ORDER.index(self._stage) < place:
            self.fraction = self._end
        self._stage, self._start = stage, self.fraction
        share = _SHARES[stage] / sum(_SHARES[name] for name in _ORDER[place:])
        self._end = self._start + (1.0 - self._start) * share
