"""Rates of the engine, measured as it runs. No torch."""

from __future__ import annotations

from collections import deque

_WINDOW_S = 2.0
_SMOOTHING = 0.3
_DECODE_STEPS = 9
_MOST_AT_ONCE = 2.0

LEAST_MEASURED_TOKENS = 16
"""Of a step with fewer prompt tokens the weights take most of the time: it tells no rate."""


class EngineMetrics:
    """Counters and rates. Times in seconds of the engine's clock, rates in tokens a second.

    ``prefill_tokens_per_s`` is smoothed over steps and prices saved tokens;
    ``safe_padded_tokens_per_s`` counts padding too, is smoothed or the latest step's, whichever is
    less, and sizes chunks;
    ``decode_tokens_per_s`` is what all conversations together got in the last two seconds.
    """

    def __init__(self) -> None:
        self.total_computed_tokens = 0
        self.total_cached_tokens = 0
        self.num_preemptions = 0
        self.num_begun_anew = 0
        self.prefill_tokens_per_s = 0.0
        self.safe_padded_tokens_per_s = 0.0
        self._padded_tokens_per_s = 0.0
        self._decode_steps_s: deque[float] = deque(maxlen=_DECODE_STEPS)
        self._recent: deque[tuple[float, int]] = deque()

    def record_step(
        self, duration_s: float, num_decodes: int, num_prefill: int, num_padded: int = 0
    ) -> None:
        """One committed step of ``num_decodes`` decoded and ``num_prefill`` prefilled tokens, with
        padding ``num_padded``.
        """
        self.total_computed_tokens += num_decodes + num_prefill
        if num_prefill == 0:
            self._decode_steps_s.append(duration_s)
            return
        # In a mixed step the decodes cost about what a step of decodes alone costs.
        own_s = duration_s - (self._usual_decode_step_s() if num_decodes else 0.0)
        if own_s > 0.0 and num_prefill >= LEAST_MEASURED_TOKENS:
            padded = max(num_padded, num_prefill)
            if num_decodes and self._padded_tokens_per_s:
                # By chance hardly any time may be left: who believes it stalls the others.
                own_s = max(own_s, padded / (_MOST_AT_ONCE * self._padded_tokens_per_s))
            self.prefill_tokens_per_s = _smooth(self.prefill_tokens_per_s, num_prefill / own_s)
            latest = padded / own_s
            self._padded_tokens_per_s = _smooth(self._padded_tokens_per_s, latest)
            # A prompt's later chunks attend to more: the latest rate knows that first.
            self.safe_padded_tokens_per_s = min(self._padded_tokens_per_s, latest)

    def _usual_decode_step_s(self) -> float:
        """The median of the latest: what the host does between two steps, taking up a long prompt
        say, is part of some step's time, and would be taken off the prompt's own here.
        """
        latest = sorted(self._decode_steps_s)
        return latest[len(latest) // 2] if latest else 0.0

    def record_output(self, now_s: float, num_tokens: int) -> None:
        """``num_tokens`` new tokens reached their conversations."""
        if not num_tokens:
            return
        self._recent.append((now_s, num_tokens))

    def decode_tokens_per_s(self, now_s: float) -> float:
        """Output tokens a second over the last two seconds."""
        recent = self._recent
        while recent and recent[0][0] < now_s - _WINDOW_S:
            recent.popleft()
        if not recent:
            return 0.0
        span = max(now_s - recent[0][0], 0.1)
        return sum(count for _, count in recent) / span


def _smooth(old: float, new: float) -> float:
    return new if old == 0.0 else old + _SMOOTHING * (new - old)
