"""Do the workloads' own counters say that nothing was lost, doubled or mixed up?

A token's counter rises by exactly one a hop, so whoever gets a token knows what it should say. A pair's requests are
numbered, so the answerer knows which one is next and the asker knows its own answer. Compares numbers; whether a
message is merely late is for the account to say.
"""

from crescendo.mlmq.workloads.account import ConservationFindings


class RelayCounter:
    """Where the tokens of one relay are. All its clients are in one process, so every hop is seen here."""

    def __init__(self, name: str, findings: ConservationFindings) -> None:
        self._name = name
        self._findings = findings
        self._hops: dict[int, int] = {}
        self._travelling: set[int] = set()
        self.hops = 0

    def leaves(self, token: int) -> int:
        """The counter with which a token is sent on, or sent for the first time."""
        self._travelling.add(token)
        self._hops[token] = self._hops.get(token, 0) + 1
        return self._hops[token]

    def stays(self, token: int) -> None:
        """It was not sent after all, and that is certain."""
        self._travelling.discard(token)
        self._hops[token] -= 1

    def arrives(self, token: int, hop: int) -> bool:
        """Whether this is the token itself, to be sent on, and not a copy of it."""
        due = self._hops.get(token)
        if due is None or token not in self._travelling or hop != due:
            said = "nobody sent" if due is None else f"{due} was due" if token in self._travelling else "it was here"
            self._findings.violate(f"token {token} of {self._name} came with {hop}, and {said}")
            return False
        self._travelling.discard(token)
        self.hops += 1
        return True

    @property
    def away(self) -> int:
        """Tokens that are on their way."""
        return len(self._travelling)


class PairCounter:
    """One asker and one answerer."""

    def __init__(self, name: str, findings: ConservationFindings) -> None:
        self._name = name
        self._findings = findings
        self._asked = 0
        self._answered = 0

    def asks(self) -> int:
        """The number of the next request."""
        self._asked += 1
        return self._asked

    def takes_back(self) -> None:
        """The request was not stored, and that is certain."""
        self._asked -= 1

    def is_next(self, stream: int, number: int, expected_stream: int) -> bool:
        """Whether the answerer has before it the request that follows the last one."""
        if (stream, number) != (expected_stream, self._answered + 1):
            due = f"{self._answered + 1} of {expected_stream}"
            self._findings.violate(f"pair {self._name} was asked {number} of {stream} where {due} was due")
            return False
        self._answered = number
        return True

    def is_own(self, stream: int, number: int, expected_stream: int) -> bool:
        """Whether the asker has before it the answer to its own request."""
        if (stream, number) != (expected_stream, self._asked):
            self._findings.violate(
                f"pair {self._name} got answer {number} of {stream} to its request {self._asked} of {expected_stream}"
            )
            return False
        return True
