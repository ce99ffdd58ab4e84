"""Is a check on the response times of a recorded run passed, failed or invalid?

Subtracts own delay message by message, in NumPy, and applies the same rules as an analysis: episodes and `explains`.
So that pauses of real processes can be judged without Spark; that an analysis says the same is a test in soak.
"""

import numpy as np

from crescendo.model.own_delay import explains, is_notable
from crescendo.pipeline.latency.delay_episodes import episodes_of
from crescendo.pipeline.latency.late_spans import LEAST_OCTAVE
from paused_runs import Delays


class JudgedDelays:
    """The response times of one run with one sending and one receiving process, as measured and without own delay."""

    def __init__(self, delays: Delays) -> None:
        order = np.argsort(delays.received_seq)
        assert (delays.received_seq[order] == delays.seq).all(), "one sender, and every message arrived once"
        self._intended_ns = delays.intended_ns
        received_ns, own_ns = delays.received_ns[order], delays.own_ns
        read_ns = delays.read_late_ns[order]
        self._response_ns = received_ns - self._intended_ns
        self._without_ns = np.maximum(self._response_ns - own_ns - read_ns, 0)
        late = self._response_ns >= 1 << LEAST_OCTAVE
        octave = np.log2(np.maximum(self._response_ns, 1)).astype(np.int64)
        spans = np.array([octave, self._intended_ns, received_ns, np.maximum(own_ns, read_ns)])[:, late]
        stalls = [(stall["from_ns"], stall["duration_ns"]) for stall in delays.stalls]
        of_stalls = np.array([(ns.bit_length() - 1, from_ns, from_ns + ns, ns) for from_ns, ns in stalls])
        for starts, ends in episodes_of(np.concatenate([spans, of_stalls.reshape(-1, 4).T], axis=1), LEAST_OCTAVE):
            for start_ns, end_ns in zip(starts, ends, strict=True):
                self._without_ns[(self._intended_ns >= start_ns) & (self._intended_ns <= end_ns)] = 0

    def outcome(self, percent: float, limit_ns: int, from_ns: int, to_ns: int) -> str:
        """Of a bound on this percentile of the messages due in this time; "pass, named" if own delay is named."""
        chosen = (self._intended_ns >= from_ns) & (self._intended_ns < to_ns)
        value, without = (
            float(np.percentile(ns[chosen], percent, method="inverted_cdf"))
            for ns in (self._response_ns, self._without_ns)
        )
        if explains(lambda ns: ns <= limit_ns, value, without):
            return "invalid"
        outcome = "pass" if value <= limit_ns else "fail"
        return f"{outcome}, named" if is_notable(value, without) else outcome
