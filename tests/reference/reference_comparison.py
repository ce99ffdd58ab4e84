"""How far is a recording from the truth?

Joins every delivery that was recorded with the same delivery in the truth, in DuckDB, which shares no code with ours.
Only reads and subtracts; the tests judge.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from plain_sockets import PLAIN_SENDER
from reference_runs import ReferenceRun

Ns = npt.NDArray[np.int64]
Key = tuple[int, int]  # sender, sequence number

_VIEWS = """
create view received as
    select sender, seq, intended_ns, sent_ns, received_ns, arrival, flags,
           row_number() over (partition by sender, seq order by arrival) - 1 as copy
    from read_parquet('{run}/received/*.parquet');
create view sent as from read_parquet('{run}/sent/*.parquet');
create view truth as
    select protocol, route, sender, seq, arrival_ns, delay_ns, departure_ns, departed,
           row_number() over (partition by sender, seq order by departed) - 1 as copy
    from read_csv('{truth}/messages.csv', header = true, types = {{'departure_ns': 'BIGINT'}});
create view stalls as from read_csv('{truth}/stalls.csv', header = true,
    types = {{'start_ns': 'BIGINT', 'end_ns': 'BIGINT'}});
create view joined as
    from received join truth using (sender, seq, copy) where departure_ns is not null;
"""


@dataclass(frozen=True)
class Deliveries:
    """Deliveries that both sides know, each with its times by our clock readings and by the server's."""

    seq: Ns
    intended_ns: Ns
    sent_ns: Ns
    received_ns: Ns
    arrival_ns: Ns
    delay_ns: Ns  # as the server drew it
    departure_ns: Ns

    @property
    def latency_ns(self) -> Ns:
        """What we measured between sending and receiving."""
        return self.received_ns - self.sent_ns

    @property
    def true_latency_ns(self) -> Ns:
        """What the server took."""
        return self.departure_ns - self.arrival_ns

    @property
    def way_in_ns(self) -> Ns:
        """From our reading of the clock to the server's."""
        return self.arrival_ns - self.sent_ns

    @property
    def way_out_ns(self) -> Ns:
        """From the server's reading of the clock to ours. By this much our response is longer than the true one."""
        return self.received_ns - self.departure_ns

    @property
    def latency_excess_ns(self) -> Ns:
        """By how much our latency is longer than what the server took."""
        return self.way_in_ns + self.way_out_ns


class Comparison:
    """A recording beside the truth."""

    def __init__(self, run: ReferenceRun) -> None:
        self._database = duckdb.connect()
        self._truth_dir = run.truth_dir
        self._database.execute(_VIEWS.format(run=run.run_dir, truth=run.truth_dir))
        self.start_ns: int = json.loads((run.run_dir / "manifest.json").read_text())["phases"][0]["start_ns"]
        columns = self._database.execute("from joined order by departed").fetchnumpy()
        self._routes = np.char.add(np.char.add(columns["protocol"].astype(str), "-"), columns["route"].astype(str))
        self._times = {name: np.asarray(columns[name], np.int64) for name in Deliveries.__dataclass_fields__}
        self._received = self._orders("select sender, seq from received order by arrival")
        self._departed = self._orders("select sender, seq from truth where departure_ns is not null order by departed")
        senders = self.rows("select distinct protocol, route, sender from truth")
        self.sender_of = {(protocol, route): sender for protocol, route, sender in senders}

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, values).fetchall()

    def keys(self, sql: str) -> list[Key]:
        return sorted((int(sender), int(seq)) for sender, seq in self.rows(sql))

    def deliveries(self, protocol: str | None = None, route: str | None = None) -> Deliveries:
        """Those of a protocol, of a route, of both or all, in the order of their departures."""
        wanted = np.ones(len(self._routes), bool)
        if protocol is not None:
            wanted &= np.char.startswith(self._routes, f"{protocol}-")
        if route is not None:
            wanted &= np.char.endswith(self._routes, f"-{route}")
        return Deliveries(**{name: times[wanted] for name, times in self._times.items()})

    def order_received(self, protocol: str, route: str) -> list[int]:
        """The sequence numbers in the order in which our receiver read them."""
        return self._received[self.sender_of[protocol, route]]

    def order_departed(self, protocol: str, route: str) -> list[int]:
        """The sequence numbers in the order in which the server sent them."""
        return self._departed[self.sender_of[protocol, route]]

    def plain_sockets(self) -> Deliveries:
        """What two plain sockets measured beside the load."""
        columns = self._database.execute(
            "select seq, sent_ns as intended_ns, sent_ns, received_ns, arrival_ns, delay_ns, departure_ns "
            "from read_csv(?) join truth using (seq) where sender = ?",
            (f"{self._truth_dir}/plain.csv", PLAIN_SENDER),
        ).fetchnumpy()
        return Deliveries(**{name: np.asarray(values, np.int64) for name, values in columns.items()})

    def _orders(self, sql: str) -> dict[int, list[int]]:
        """The sequence numbers of each sender, in the order of the rows."""
        orders: dict[int, list[int]] = defaultdict(list)
        for sender, seq in self.rows(sql):
            orders[sender].append(seq)
        return orders
