"""Do the counters of the workloads show lost, duplicated or mixed up messages?

A token's counter rises by exactly one per hop, so its receiver knows which value to expect. The requests of a pair are
numbered, so the responder knows which one is next and the requester knows its own answer. Compares numbers only;
whether a message is merely late is decided by the account.
"""

from crescendo.mlmq.workloads.account import ConservationFindings


class RelayCounter:
    """The tokens of one relay. All its clients are in one process, so every hop is seen here."""

    def __init__(self, name: str, findings: ConservationFindings) -> None:
        self._name = name
        self._findings = findings
        self._hops: dict[int, int] = {}
        self._in_flight: set[int] = set()
        self.hops = 0

    def next_hop(self, token: int) -> int:
        """The counter for the next hop of a token."""
        self._in_flight.add(token)
        self._hops[token] = self._hops.get(token, 0) + 1
        return self._hops[token]

    def undo_hop(self, token: int) -> None:
        """The token was certainly not sent."""
        self._in_flight.discard(token)
        self._hops[token] -= 1

    def check_received(self, token: int, hop: int) -> bool:
        """Whether this is the token itself, to be forwarded, and not a copy of it."""
        expected = self._hops.get(token)
        if expected is None or token not in self._in_flight or hop != expected:
            if expected is None:
                reason = "was never sent"
            elif token in self._in_flight:
                reason = f"{expected} was expected"
            else:
                reason = "was not in flight"
            self._findings.add_violation(f"token {token} of {self._name} arrived with {hop}, but {reason}")
            return False
        self._in_flight.discard(token)
        self.hops += 1
        return True

    @property
    def in_flight(self) -> int:
        """Tokens in flight."""
        return len(self._in_flight)


class PairCounter:
    """One requester and one responder."""

    def __init__(self, name: str, findings: ConservationFindings) -> None:
        self._name = name
        self._findings = findings
        self._asked = 0
        self._answered = 0

    def next_request(self) -> int:
        """The number of the next request."""
        self._asked += 1
        return self._asked

    def undo_request(self) -> None:
        """The request was certainly not stored."""
        self._asked -= 1

    def check_request(self, stream: int, number: int, expected_stream: int) -> bool:
        """Whether the responder received the request that follows the last one."""
        if (stream, number) != (expected_stream, self._answered + 1):
            expected = f"{self._answered + 1} of {expected_stream}"
            self._findings.add_violation(f"pair {self._name} got request {number} of {stream}, expected {expected}")
            return False
        self._answered = number
        return True

    def check_answer(self, stream: int, number: int, expected_stream: int) -> bool:
        """Whether the requester received the answer to its own request."""
        if (stream, number) != (expected_stream, self._asked):
            self._findings.add_violation(
                f"pair {self._name} got answer {number} of {stream} to its request {self._asked} of {expected_stream}"
            )
            return False
        return True
