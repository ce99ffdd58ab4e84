"""What does each key of an experiment file mean?

One sentence per key, by the value it belongs to. The JSON Schema and the table in docs/experiment.md are made of these;
a test finds a key without a sentence. Links and code are written as in Markdown.
"""

from collections.abc import Iterable

from msgspec import Struct

from crescendo.model.agents import Agent
from crescendo.model.connection_timeouts import ConnectionTimeouts
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_parts import Inspect, PeerPlace, Peers, Phases, System
from crescendo.model.lab_network import AccessPoint, Impairment, LabLink, LabSettings
from crescendo.model.mlmq_clients import Clients
from crescendo.model.planned_faults import PlannedFault
from crescendo.model.profile import Incremental, OnOff, Ramp, Replay, Sine, Spike, Step, Steps
from crescendo.model.protocols import OWN
from crescendo.model.search import Search
from crescendo.model.workload import Group, Summarize, WindowMode


def _listed(names: Iterable[str | None]) -> str:
    return ", ".join(f"`{name}`" for name in names if name)


KEYS: dict[type[Struct], dict[str, str]] = {
    Experiment: {
        "name": "letters, digits, `.`, `_`, `-`; without it, the name of the file",
        "system": "the system under test: a `kind` that Crescendo starts, or the `url` of one that is running",
        "workload": "the load: one mapping, or a list of named groups of senders and receivers",
        "clients": (
            "MLMQ's own workloads, see [mlmq-experiments.md](mlmq-experiments.md): one mapping, or a list of groups"
        ),
        "profile": "the shape of the rate of every group, see [Profiles](#profiles)",
        "phases": "how long to warm up, to measure and to drain",
        "inspect": "what is polled for its own figures during the run: see [inspectors.md](inspectors.md)",
        "checks": (
            "bounds that decide the verdict, of the run or of a group: see [Checks](#checks); without them, "
            "nothing may be lost, and 99 % "
            "of the offered rate must arrive"
        ),
        "peers": "how many processes share the connections of each role",
        "seed": "the same file and seed give the same schedule",
        "stop_when": (
            "`{response_p90: 200ms}` or `{response_max: 2s}`, also of a group, a destination or a protocol, "
            "`{orders.response_p90: 200ms}`: when a receiver exceeds this in one second of the measure phase, all "
            "sending stops at once; the drain follows, and the verdict is fail, unless our own delay could explain it"
        ),
        "search": "find the highest rate within given limits: see [search.md](search.md)",
        "accept_drift": (
            "`true` where rate, latency or backlog are meant to change while they are measured, as with a ramp; "
            "without it, checks on rate and latency are invalid when they drift"
        ),
        "topology": (
            "instead of `system`: the file of a network that is started here, every node of it inspected, and stopped "
            "again; see [topology.md](topology.md#in-an-experiment)"
        ),
        "lab": "hosts on this machine, with links of their own, for the system and the peers: see [lab.md](lab.md)",
        "probe_links": (
            "with `topology`: before the load, this many messages of every kind go the way of each group and are "
            "compared one by one; the report says what became of them, see "
            "[federation.md](federation.md#what-a-link-does-to-a-message)"
        ),
        "faults": "what is broken on purpose during the run, when, and for how long: see [faults.md](faults.md)",
        "agents": "peers that run commands of their own repositories beside the system: see [agent.md](agent.md)",
    },
    Agent: {
        "name": "unique among the agents",
        "source": "the git repository of its handlers: an absolute path or a URL, which the agent must allow",
        "branch": "a branch or a commit, which the agent must allow; without it, the one commit that it allows",
        "config": "the configuration file of an agent that the run starts on this host, beside the experiment file",
        "on": "instead of `config`: the host, the name or a label of a standing agent",
    },
    System: {
        "kind": (
            "a system that Crescendo starts and stops around the run: see [systems.md](systems.md); without "
            "`system`, it is `loopback`"
        ),
        "url": (
            f"`amqp://[user:password@]host[:port]`; schemes: {_listed(protocol.scheme for protocol in OWN.values())}; "
            f"over TLS {_listed(protocol.secure_scheme for protocol in OWN.values())}, see [tls.md](tls.md); AMQP "
            "0-9-1 and STOMP take a virtual host as path, `amqp091://host/shop`; MLMQ takes more brokers, "
            "`mlmq://host:port?brokers=host:port,…`"
        ),
        "version": "which version of the kind; without it, the installed one",
        "home": "the directory of an installation that Crescendo did not make",
        "settings": (
            "of the kind: users, protocols, persistence, memory, threads, queues; `queues` defaults to those of "
            "the workload"
        ),
        "fresh": (
            "install it for this run alone: a release is unpacked once more, a package must be as the distribution "
            "made it; every run starts with empty data in any case"
        ),
    },
    Group: {
        "name": "unique among the groups",
        "address": (
            "`queue://NAME`: receivers share the messages; `topic://NAME`: each receiver is owed all of them; "
            "with options, see [Addresses](#addresses); `{run}` becomes a name that no other run has; a list means "
            "failover"
        ),
        "failover": "further addresses, to which a lost connection reconnects in turn; the same as a list in `address`",
        "destinations": (
            "with `{n}` in the address, the number of queues or topics: connection i uses number i modulo this"
        ),
        "protocol": (
            f"{_listed(OWN)} (queues only, see [mlmq.md](mlmq.md#under-load)): the protocol at the system's URL"
        ),
        "client": (
            "`jms`: the vendor's own Java client sends and receives instead of our driver, see [jms.md](jms.md)"
        ),
        "senders": "connections that send, up to 32,767 in a run",
        "receivers": "connections that receive, up to 32,767 in a run",
        "size": (
            "payload bytes: 32 bytes to 64 MiB, for mlmq to 2,000 bytes; KB is 1000, KiB is 1024; `~256` is up to "
            "5 % more or less; `[{size: 256, weight: 3}, {size: 10KB}]` is a mixture; `{file: PATH}` sends the "
            "lines of a file, each after a stamp"
        ),
        "rate": "messages per second and connection; 0 = as fast as the receiving side accepts",
        "settle": (
            "`at-least-once`: the system acknowledges; `at-most-once`: sent settled; `exactly-once`: where "
            "protocol and system offer it (AMQP 1.0, MQTT)"
        ),
        "mode": (
            "`{kind: open}`: messages are sent when they are due, regardless of earlier ones; `{kind: window, "
            "size: 100}`: at most this many messages of a connection are unsettled at a time; `{kind: echo}`: "
            "receivers send each message back to a queue of its sender, and round trip and one-way time are "
            "recorded as spans; `{kind: ping-pong}`: the same, and the next message of a connection waits for the "
            "answer to its last"
        ),
        "properties": "string properties of every message, for selectors",
        "buffer": (
            "how many messages may wait while the system blocks a sender; messages that do not fit are shed: "
            "never sent, and recorded as such; without it, all wait"
        ),
        "connection": "how soon its connections notice that nobody answers any more",
        "delay": "a slow receiver: its processing time per message; it settles messages when they are processed",
        "summarize": "each receiver publishes how many messages it received",
        "receive_rate": "a slow receiver: the messages per second that it processes",
        "purge": (
            "`true` deletes whatever the queue, or the durable subscription, holds before the run; on a terminal you "
            "are asked first"
        ),
        "send_to": (
            "where its senders connect to, instead of `system`: a URL, `amqp://user:password@host:5672`, whose "
            "protocol they speak then; a host, `hostA` or `hostA:5673`; with `topology`, a node of the network"
        ),
        "receive_from": (
            "the same for its receivers; both sides may have different hosts and protocols, if the systems there pass "
            "messages on"
        ),
    },
    ConnectionTimeouts: {
        "heartbeat": (
            "the interval of the protocol's heartbeats that our driver asks for, in whole seconds; after two silent "
            "intervals (STOMP three, MQTT one and a half) the connection is lost; without it, 10 s; "
            "AMQP 1.0, AMQP 0-9-1, STOMP and MQTT"
        ),
        "keepalive": (
            "TCP probes a silent connection after this time, then at the same interval, and gives it up after three "
            "unanswered probes; nothing is probed while data waits for an acknowledgement; without it, never"
        ),
        "user_timeout": (
            "TCP gives a connection up when data was not acknowledged for this long; without it, after about a quarter "
            "of an hour"
        ),
        "confirm_timeout": (
            "a sender gives its connection up when the system has settled none of its messages for this long, although "
            "some are in flight; with `failover` it sends them again on the next one; without it, it waits"
        ),
    },
    WindowMode: {
        "size": "how many messages of a connection may be unsettled at a time",
    },
    Summarize: {
        "to": "where the summary is published: `topic://NAME`, on the group's own system",
        "every": "the period of a summary",
        "of": (
            "what is summarized: `messages` counts them; `transfers` sums the bytes per server in the lines of "
            "gridFTP logs"
        ),
    },
    Phases: {
        "warmup": "a duration; not judged",
        "measure": "a duration, or a number of messages per connection, such as `5000 messages`",
        "drain": "how long the last messages may take to arrive",
        "drain_limit": "while messages still arrive, the drain goes on up to this; without it, four times the drain",
    },
    Inspect: {
        "kind": "a kind of system, or `process`",
        "every": "the period; without it, 5 s, and 1 s for processes",
        "url": "the management interface, where it is not that of the system that Crescendo starts",
        "pid": "the process to watch, where Crescendo does not start the system",
        "on": (
            "a standing inspector, by host, name or label, instead of one that the run starts here; with `pid`, a "
            "process of that host"
        ),
    },
    LabSettings: {
        "hosts": "the hosts by name, and the link of each; `{}` is a cable without limits",
        "system": "the host on which the system runs; peers without a place run there too",
        "access_points": "where stations connect, by name",
        "baseline": "`false` leaves out the measurement of the network before the run, which takes about a second",
    },
    LabLink: {
        "access_point": "the host is a station, and begins at this access point; without it, it has a cable",
        "rate": "the bandwidth of the link in each direction, such as `20Mbit`; without it, what this machine can do",
        "rate_up": "the bandwidth from the host, if it is not `rate`",
        "rate_down": "the bandwidth to the host, if it is not `rate`",
        "up": "what happens to packets from the host",
        "down": "what happens to packets to the host",
        "arp_retry": "at which interval it asks again (ARP) for a neighbour that does not answer; without it, 1 s",
        "rto_min": "the shortest time after which its TCP sends again what was not acknowledged; without it, 200 ms",
    },
    AccessPoint: {
        "network": "its IP network: a station that moves to another gets another address, and its connections end",
    },
    Impairment: {
        "delay": "every packet takes this much longer",
        "jitter": "the delay differs by up to this much, evenly distributed; packets keep their order",
        "loss": "the share of packets that are lost, such as `1%`",
        "duplicate": "the share of packets that arrive twice",
        "reorder": "the share of packets that overtake those that are delayed",
        "corrupt": "the share of packets of which one bit changes; checksums find most of them",
    },
    PlannedFault: {
        "at": ("when it begins: `30s` after the start of the run, `measure + 10s`, `drain + 1s`"),
        "do": (
            "what is done: `restart`, `stop`, `kill`, `pause`, `cpu`, `memory`, `descriptors`, `disconnect` or "
            "`command`, see [faults.md](faults.md#actions); `cut`, `impair` or `handoff`, see [lab.md](lab.md#faults)"
        ),
        "on": "the node of the network, or `system`; for links, a host of the `lab`",
        "for": "how long it lasts; without it, an action that has a length lasts until the run ends",
        "every": "the period of a fault that is repeated",
        "times": "how often it is repeated",
        "within": "it begins at a random time of this interval after `at`, drawn from the seed",
        "with": "settings of the action, such as `{share: 0.2}`",
    },
    Peers: {
        "senders": (
            "processes that share the sending connections; or standing peers, `[{on: hostA, count: 2}]`: by host, name "
            "or label, see [control.md](control.md#standing-peers); with `lab`, on these hosts of the lab"
        ),
        "receivers": "processes that share the receiving connections; or standing peers, as for senders",
        "clients": "processes that share the MLMQ clients",
    },
    PeerPlace: {
        "on": "the host, the name or a label of standing peers; with `lab`, a host of the lab",
        "count": "how many of them",
    },
    Ramp: {
        "over": "how long the rate changes",
        "from": "the fraction of the rate at the beginning",
        "to": "the fraction of the rate at the end, and from then on",
    },
    Step: {
        "factor": "the fraction of the rate",
        "lasts": "how long this level holds",
    },
    Steps: {
        "steps": "the levels; the last one holds",
    },
    Spike: {
        "at": "when it begins, counted from the start of the run",
        "lasts": "how long it lasts",
        "factor": "how many times the rate is sent meanwhile",
    },
    OnOff: {
        "active": "how long the rate is sent",
        "idle": "how long nothing is sent",
    },
    Sine: {
        "period": "of the oscillation",
        "depth": "by which fraction of the rate it oscillates",
    },
    Replay: {
        "file": "a text file with one time in seconds per line; each connection replays all of it",
        "speed": "how many times faster than recorded",
    },
    Incremental: {
        "every": "how long each step lasts",
        "from": "the fraction of the rate at the beginning",
        "step": "by which fraction the rate grows in each step",
        "connections": "how many are active from the start",
        "join": "how many join in each later step",
    },
    Search: {
        "from": "the lowest rate to try, in messages per second over all senders",
        "to": "the highest rate to try",
        "resolution": "how wide the gap between the highest good and the lowest bad rate may be",
        "confirm": "how many of how many tries must agree on the answer",
        "limits": "what a try must meet: bounds as in `checks`, of a group too, or `backlog: steady`",
        "tries": "how many runs the search may take",
    },
    Clients: {
        "name": "unique among the groups",
        "kind": "which of MLMQ's workloads",
        "count": "how many clients",
        "wait": "the pause of a client after each action",
        "timeout": "a request answered later than this counts as not served",
        "poll": "how long a broker may wait for a message; 0: it answers `empty` at once",
        "size": "bytes of a message",
        "priority": "of its messages, 1 to 10",
        "queue": "the public queue of producers and consumers",
        "messages": "how many each simple-send client sends",
        "group_size": "how many clients start together",
        "group_delay": "the pause before the next clients start",
        "breakup": "whether the time of each request is recorded by tier",
        "per_connection": "how many clients of a process share a connection",
    },
}

PATHS: dict[str, type[Struct]] = {
    "": Experiment,
    "system.": System,
    "workload.": Group,
    "workload.connection.": ConnectionTimeouts,
    "workload.summarize.": Summarize,
    "phases.": Phases,
    "inspect.": Inspect,
    "faults.": PlannedFault,
    "peers.": Peers,
    "agents.": Agent,
    "lab.": LabSettings,
    "lab.hosts.HOST.": LabLink,
    "lab.hosts.HOST.up.": Impairment,
    "lab.access_points.NAME.": AccessPoint,
}
"""Where the values of the table in docs/experiment.md are in a file. Profiles, searches and clients have their own."""
