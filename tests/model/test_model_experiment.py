"""Does a file become an experiment, or one clear sentence about what is wrong with it?"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, load_experiment, to_document
from crescendo.model.experiment_parts import System
from crescendo.model.schedule import expected_messages, measure_ns, offered
from crescendo.model.urls import redact_url
from crescendo.model.workload import Settle

DESIGN_EXAMPLE = """
name: broker-latency-80-percent
system: {url: "amqp://host:5672"}
workload:
  - name: main
    address: queue://perf
    protocol: amqp10
    senders: 5
    receivers: 5
    size: 256
    rate: 4600
    settle: at-least-once
    mode: {kind: open}
profile: {kind: constant}
phases: {warmup: 10s, measure: 15m, drain: 30s}
checks: {response_p99: "<= 200ms", lost: 0, rate: ">= 0.99 of offered"}
seed: 1
"""
TWO_GROUPS = {"workload": [{"name": "fast", "rate": 10}, {"name": "slow", "rate": 1, "address": "topic://news"}]}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "my-experiment.yml"
    path.write_text(text, encoding="utf-8")
    return path


def read(document: dict[str, Any], *overrides: str) -> Experiment:
    return experiment_from(document, overrides, default_name="test")


def test_the_example_of_the_design_is_read(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, DESIGN_EXAMPLE))
    [group] = experiment.workload
    assert (group.senders, group.receivers, group.size, group.rate) == (5, 5, 256, 4600.0)
    assert group.settle is Settle.AT_LEAST_ONCE
    assert (group.destination, group.is_topic, offered(experiment)) == ("perf", False, 23_000.0)
    assert experiment.phases.warmup == 10 * 10**9
    assert experiment.phases.measure.duration == 900 * 10**9
    assert experiment.effective_checks["response_p99"].limit(0) == 200e6


def test_an_empty_mapping_is_an_experiment_named_after_its_file(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, "{}"))
    assert experiment.name == "my-experiment"
    assert experiment.system.kind == "loopback"
    assert set(experiment.effective_checks) == {"lost", "rate"}


MISTAKES = [
    ("wrkload: {}", "top level: unknown key 'wrkload'", "'workload'"),
    ("workload: {raet: 5}", "workload: unknown key 'raet'", "'rate'"),
    ("phases: {mesure: 5s}", "phases: unknown key 'mesure'", "'measure'"),
    ("phases: {zzz: 5s}", "phases: unknown key 'zzz'", "known keys: warmup, measure, drain"),
    ("system: {ulr: x}", "system: unknown key 'ulr'", "'url'"),
    ("peers: {sender: 2}", "peers: unknown key 'sender'", "'senders'"),
    ("workload: {mode: {kind: open, sise: 1}}", "workload.mode: unknown key 'sise'", "'size'"),
    ("workload: {mode: {kind: closed}}", "workload.mode", "closed"),
    ("workload: {mode: {kind: window, size: 0}}", "workload.mode.size", ">= 1"),
    ("workload: {mode: {kind: window, size: 5}, settle: at-most-once}", "workload: a window", "at-least-once"),
    ("workload: {mode: {kind: echo}, size: 39}", "workload", "40 bytes"),
    ("workload: {mode: {kind: ping-pong}, address: 'topic://x'}", "workload", "needs a queue"),
    ("workload: {address: 'queue://x?qos=1'}", "workload", "these do: mqtt"),
    ("workload: {address: 'queue://perf.{n}'}", "workload", "destinations"),
    ("workload: {address: 'topic://x?subscription=me', receivers: 2}", "workload", "one receiver"),
    ("workload: {buffer: 10, rate: 0}", "workload", "buffer needs a rate"),
    ("workload: {delay: 1ms, receive_rate: 5}", "workload", "give one of them"),
    ("workload: {settle: exactly-once, protocol: stomp}", "workload", "these do: amqp10, mqtt"),
    ("workload: {size: 31}", "workload.size: size 31", "stamp of 32 bytes"),
    ("workload: {size: 1XB}", "workload.size", "256, 10KB or 1MiB"),
    ("workload: {rate: fast}", "workload.rate: 'fast' is not a number", "5000"),
    ("workload: {rate: -1}", "workload.rate", ">= 0"),
    ("workload: {rate: .inf}", "workload: rate inf", "0 (unbounded)"),
    ("workload: {rate: 1.0e+30}", "workload: rate 1e+30", "between"),
    ("workload: {rate: .nan}", "workload", "rate"),
    ("workload: {senders: 40000}", "workload.senders", "32767"),
    ("workload: {senders: 2.5}", "workload.senders: 2.5 is not a whole number", "3"),
    ("workload: {settle: sometimes}", "workload.settle: 'sometimes'", "at-most-once, at-least-once or exactly-once"),
    ("workload: {settle: atleastonce}", "workload.settle: 'atleastonce'", "did you mean 'at-least-once'?"),
    ("workload: {rate: 5k}", "workload.rate: '5k' is not a number", "such as 5000"),
    ("workload: [{name: a}, {name: b, rate: 5k}]", "workload[1].rate: '5k' is not a number", "5000"),
    ("accept_drift: maybe", "accept_drift: 'maybe' is not true or false", ""),
    ("name: héllo", "name: 'héllo' is not a valid name", "letters, digits and . _ -"),
    ("checks: {rate: many}", "checks.rate: 'many' is not a valid bound", "<= 200ms"),
    ("checks: {lots: 0}", "no metric is called 'lots'", "did you mean 'lost'?"),
    ("stop_when: {response_p9: 1s}", "stop_when: 'response_p9'", "did you mean 'response_p90'?"),
    ("stop_when: {ordres.response_p90: 1s}", "no group, destination or protocol is called 'ordres'", "known: amqp10"),
    ("stop_when: {load.response_p50: 1s}", "stop_when: 'load.response_p50'", "response_p90"),
    ("stop_when: {response_p90: 1}", "stop_when.response_p90: 1 is not a duration", "500ms"),
    ("system: {url: 'amqp://h?cacert=x'}", "amqp:// has no option 'cacert'", "did you mean 'cert'?"),
    ("system: {url: 'amqp://h?durable=yes'}", "amqp:// has no option 'durable'", "in the address of a workload"),
    ("workload: {address: 'queue://x?durabel=yes'}", "unknown option 'durabel'", "did you mean 'durable'?"),
    ("workload: {protocol: mqt}", "protocol 'mqt'", "did you mean 'mqtt'?"),
    ("phases: {measure: 5}", "phases.measure: 5 needs a unit", "write 5s for seconds, or '5 messages'"),
    ("phases: {measure: -5}", "phases.measure: -5 is not a valid extent", "a count of at least 1, or a duration"),
    ("peers: {senders: two}", "peers.senders: 'two' is not a whole number", "or a list"),
    ("search: {from: 1, to: 2, limits: {backlog: stedy}}", "search.limits.backlog: 'stedy'", "write steady"),
    ("phases: {measure: '5'}", "phases.measure: 5 needs a unit", "write 5s for seconds, or '5 messages'"),
    ("{workload: {rate: 0}, checks: {response_p99: '<= 1s'}}", "checks.response_p99: response", "judge transfer_p99"),
    ("{workload: {rate: 0}, checks: {rate: '>= 0.9 of offered'}}", "checks.rate: '>= 0.9 of offered'", "'>= 5000'"),
    ("{workload: {rate: 0}, stop_when: {response_p90: 1s}}", "stop_when.response_p90", "needs a rate"),
    ("{workload: {settle: at-most-once}, checks: {settle_p99: '<= 1s'}}", "checks.settle_p99", "at-least-once"),
    ("checks: {main.never_offered: 0}", "checks.main.never_offered", "write checks.never_offered"),
    ("checks: {main.detection_time: '<= 1s'}", "checks.main.detection_time", "write checks.detection_time"),
    ("workload: {protocol: jms}", "workload: protocol 'jms'", "write amqp10, amqp091, stomp, mqtt"),
    ("{system: {url: 'mqtt://h'}, workload: {}}", "uses amqp10, but the system's url begins with mqtt://", "to mqtt"),
    ("workload: {address: 'http://x'}", "workload: address 'http://x'", "queue://NAME"),
    ("workload: {address: 'queue://a b'}", "workload: address", "topic://NAME"),
    ("workload: {address: 'queue://x?durable=maybe'}", "address: durable=maybe", "write yes or no"),
    ("workload: {address: 'queue://x?prefetch=0'}", "address: prefetch=0", "write a number >= 1"),
    ("workload: {address: 'queue://x?prefetch=few'}", "address: prefetch=few", "write a whole number"),
    ("workload: {address: 'topic://x?subscription=a/b'}", "address: subscription=a/b", "letters, digits and . _ -"),
    ("workload: {address: 'queue://x-{rnu}'}", "workload.main.address: {rnu}", "did you mean '{run}'?"),
    ("workload: {size: {file: nowhere.txt}}", "workload.main: size: nowhere.txt", "No such file"),
    ("workload: {senders: 0, receivers: 0}", "workload: a group needs", "at least one"),
    ("workload: {senders: 0}", "no group has a sender", "nothing to measure"),
    ("workload: {receivers: 0}", "no receiver on queue://perf", "a receiver"),
    ("workload: []", "workload", "length >= 1"),
    ("workload: 5", "workload: 5 is not", "a list"),
    ("workload: [{name: a}, {name: a}]", "two groups are called 'a'", "own name"),
    ("workload: [{name: a}, {name: b, senders: 0, address: queue://z}]", "no sender on queue://z", "a sender"),
    ("workload: {name: 'has space'}", "workload.name: 'has space' is not a valid name", "beginning with a letter"),
    ("name: '../evil'", "name: '../evil' is not a valid name", "letters, digits"),
    ("phases: {measure: 0}", "phases.measure", "at least 1"),
    ("phases: {measure: '0'}", "phases.measure", "at least 1"),
    ("phases: {measure: 0s}", "phases: measure must be longer", "30s, or a count"),
    ("phases: {measure: soon}", "phases.measure", "500ms, 30s, 15m or 2h"),
    ("phases: {warmup: 30}", "phases.warmup", "500ms, 30s, 15m or 2h"),
    ("system: rabbitmq", "system: 'rabbitmq' is not a mapping", "with keys such as kind and url"),
    ("inspect: artemis", "inspect: 'artemis' is not a list of mappings", "with keys such as kind"),
    ("system: {url: 'ampq://h'}", "system: url 'ampq://h'", "did you mean 'amqp://'?"),
    ("system: {url: 'amqp://'}", "system: url 'amqp://': it names no host", "amqp://[user:password@]host[:port]"),
    ("system: {url: 'mqtt://a b'}", "its host is not valid; there is a space", "mqtt://[user:password@]host[:port]"),
    ("system: {url: 'amqp://a..b'}", "its host is not valid", "host[:port]"),
    ("system: {url: 'amqp://[::1:5672'}", "its host is not valid", "write [ and ] around an IPv6 address"),
    ("system: {}", "system: give either kind", "or url"),
    ("system: {kind: loopback, url: 'amqp://h'}", "system: give either kind", "or url"),
    ("system: {url: 'amqp://h', settings: {a: 1}}", "system: settings has no effect with url", "that Crescendo starts"),
    ("system: {url: 'tcp://h'}", "system: url 'tcp://h'", "amqp://[user:password@]host[:port]"),
    ("system: {url: 'amqp://h:notaport'}", "system: url", "amqp://[user:password@]host[:port]"),
    ("system: {url: 'amqp://h:99999'}", "system: url", "host[:port]"),
    ("system: {url: 'amqp://h/queue'}", "system: url 'amqp://h/queue' has a path", "in the address of a workload"),
    ("system: {url: 'amqp://h', version: '2'}", "system: version has no effect with url", "that Crescendo starts"),
    ("inspect: [{kind: process, evry: 1s}]", "inspect[0]: unknown key 'evry'", "'every'"),
    ("inspect: [{kind: process, every: 1ms}]", "inspect[0]: every must be at least 100ms", "would add load"),
    ("inspect: [{kind: process, url: 'http://h'}]", "inspect[0]: a process inspector", "pid on this machine"),
    ("inspect: [{kind: artemis, pid: 7}]", "inspect[0]: pid needs kind: process", "needs a url"),
    ("{system: {url: 'amqp://h'}, inspect: [{kind: artemis}]}", "inspect: artemis needs a url", "does not start"),
    ("{system: {url: 'amqp://h'}, inspect: [{kind: process}]}", "inspect: process needs a pid", "does not start"),
    ("checks: {p99: 5}", "no metric is called 'p99'", "response_p99"),
    ("checks: {lost: some}", "checks", "'<= 200ms'"),
    ("profile: {kind: zigzag}", "profile", "zigzag"),
    ("profile: {kind: ramp}", "profile", "'over' is missing"),
    ("profile: {kind: ramp, over: 5s, form: 1}", "profile: unknown key 'form'", "'from'"),
    ("profile: {kind: steps, steps: [{factr: 1, lasts: 1s}]}", "profile.steps[0]: unknown key 'factr'", "'factor'"),
    ("workload: {summarize: {to: topic://s, evry: 1s}}", "workload.summarize: unknown key 'evry'", "'every'"),
    ("clients: [{name: a, knid: paired}]", "clients[0]: unknown key 'knid'", "'kind'"),
    ("profile: {kind: on-off, active: 0s, idle: 1s}", "profile: active must be longer", "30s"),
    ("{profile: {kind: poisson}, workload: {rate: 0}}", "needs a rate", "unbounded"),
    ("profile: {kind: steps, steps: [{factor: 0, lasts: 1s}]}", "never sends anything", ""),
    ("seed: one", "seed: 'one' is not", "a whole number"),
    ("- a list", "expected a mapping", "name, workload and phases"),
    ("a: [1", "this is not YAML", ""),
    ("", "expected a mapping", "workload"),
]


@pytest.mark.parametrize(("text", "where", "cure"), MISTAKES, ids=[text or "nothing" for text, _, _ in MISTAKES])
def test_every_mistake_names_file_path_and_cure(tmp_path: Path, text: str, where: str, cure: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as mistake:
        load_experiment(path)
    sentence = str(mistake.value)
    assert sentence.startswith(f"{path}: ")
    assert where in sentence
    assert cure in sentence
    assert "\n" not in sentence


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yml: no such file"):
        load_experiment(tmp_path / "nothing.yml")
    binary = tmp_path / "binary.yml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yml: cannot be read"):
        load_experiment(binary)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_experiment(tmp_path)


# -- --set -----------------------------------------------------------------------------------------------------------


def test_an_override_reaches_every_group_or_one() -> None:
    assert [group.rate for group in read(TWO_GROUPS, "workload.rate=7").workload] == [7.0, 7.0]
    assert [group.rate for group in read(TWO_GROUPS, "workload.slow.rate=7").workload] == [10.0, 7.0]
    assert [group.rate for group in read({}, "workload.main.rate=7").workload] == [7.0]
    assert [group.rate for group in read({"workload": {"rate": 1}}, "workload.rate=0").workload] == [0.0]


def test_an_override_reaches_every_depth_and_keeps_types() -> None:
    experiment = read(
        TWO_GROUPS, "phases.measure=2m", "phases.warmup=0", "system.url=amqp://h", "system.kind=null",
        "checks.response_p99='<= 5ms'", "seed=7", "name=other", "workload.size=1KB",
    )  # fmt: skip
    assert experiment.phases.measure.duration == 120 * 10**9
    assert (experiment.phases.warmup, experiment.seed, experiment.name) == (0, 7, "other")
    assert experiment.system.url == "amqp://h"
    assert experiment.checks is not None
    assert experiment.checks["response_p99"].limit(0) == 5e6
    assert {int(group.size) for group in experiment.workload} == {1000}


def test_an_override_may_replace_the_whole_workload() -> None:
    assert [group.rate for group in read(TWO_GROUPS, "workload={rate: 3}").workload] == [3.0]
    experiment = read(TWO_GROUPS, "workload=[{rate: 3}, {name: b}]", "workload.b.rate=4")
    assert [group.rate for group in experiment.workload] == [3.0, 4.0]


def test_later_overrides_win_and_the_document_is_unchanged() -> None:
    document = {"workload": [{"rate": 1}], "phases": {"warmup": "1s"}}
    assert read(document, "workload.rate=2", "workload.rate=3", "phases.warmup=2s").workload[0].rate == 3.0
    assert document == {"workload": [{"rate": 1}], "phases": {"warmup": "1s"}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("workload.rate", "write it as path=value"),
        ("=5", "write it as path=value"),
        ("workload.rate=[1", "not YAML"),
        ("name.first=x", "does not lead into a mapping"),
        ("workload.raet=5", "did you mean 'rate'"),
        ("workload.rate=fast", "workload.rate"),
        ("phases.mesure=5s", "did you mean 'measure'"),
        ("wrokload.rate=5", "did you mean 'workload'"),
        ("workload.nogroup.rate=5", "no group is called 'nogroup'; known: main"),
        ("workload.mian.rate=5", "did you mean 'main'?"),
    ],
)
def test_a_wrong_override_is_one_sentence(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as mistake:
        read({}, override)
    assert message in str(mistake.value)


def test_another_system_replaces_that_of_the_file() -> None:
    document = {"system": {"kind": "artemis", "version": "2.44.0", "settings": {"memory": "1GB"}}}
    assert read(document, "system.url=amqp://h").system == System(url="amqp://h")
    assert read({"system": {"url": "amqp://h"}}, "system.kind=artemis").system == System(kind="artemis")
    assert read(document, "system.settings.memory=2GB").system.version == "2.44.0"


# -- round trip ------------------------------------------------------------------------------------------------------

documents = st.fixed_dictionaries(
    {"name": st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")},
    optional={
        "workload": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "size": st.sampled_from([32, "1KB", "2KiB"]) | st.integers(32, 10**6),
                    "rate": st.sampled_from([0, 0.5, 700_000]) | st.floats(0.01, 1e6),
                    "senders": st.integers(1, 20),
                    "settle": st.sampled_from(["at-most-once", "at-least-once"]),
                    "address": st.sampled_from(["queue://a", "topic://b", "plain"]),
                },
            ),
            min_size=1,
            max_size=3,
        ).map(lambda groups: [{**group, "name": f"g{number}"} for number, group in enumerate(groups)]),
        "phases": st.fixed_dictionaries(
            {},
            optional={
                "warmup": st.sampled_from([0, "1s", "1500ms"]),
                "measure": st.sampled_from(["10s", "2h", "5000 messages", "1 message"]),
            },
        ),
        "checks": st.dictionaries(st.sampled_from(["lost", "rate"]), st.sampled_from([0, 2_000_000, "<= 5"])),
        "seed": st.integers(0, 2**40),
    },
)


@given(documents)
def test_an_experiment_round_trips(document: dict[str, Any]) -> None:
    experiment = experiment_from(document)
    plain = to_document(experiment)
    assert experiment_from(plain) == experiment
    assert experiment_from(yaml.safe_load(yaml.safe_dump(plain))) == experiment


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_a_url_may_name_a_virtual_host_if_the_protocol_has_them() -> None:
    for url in ("amqp091://h/shop", "stomp://h:61613/shop"):
        protocol = url.partition(":")[0]
        experiment = experiment_from({"name": "v", "system": {"url": url}, "workload": {"protocol": protocol}})
        assert experiment.system.url == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://guest:hunter2@host:5672", "amqp://guest:***@host:5672"),
        ("amqp://guest:hun@ter2@host", "amqp://guest:***@host"),
        ("amqp://guest@host", "amqp://guest@host"),
        ("amqp://host", "amqp://host"),
    ],
)
def test_a_password_in_a_url_is_not_shown(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    experiment = read({"system": {"url": url}})
    assert experiment.redacted().system.url == shown
    assert experiment.system.url == url


@pytest.mark.parametrize(
    "url",
    ["amqp://u:hunter2@h/queue", "amqp://u:hun/ter2@host", "amqp://u:hun:ter2@h:0", "tcp://u:hunter2@h",
     "amqp://u:hunter2@h:port"],
)  # fmt: skip
def test_a_password_is_not_shown_in_an_error_either(url: str) -> None:
    for attempt in ({"system": {"url": url}},):
        with pytest.raises(ConfigError) as mistake:
            read(attempt)
        assert "hun" not in str(mistake.value)
        assert "ter2" not in str(mistake.value)


def test_a_password_in_settings_is_not_shown() -> None:
    experiment = read({"system": {"kind": "loopback", "settings": {"user": "me", "password": "hunter2"}}})
    redacted = experiment.redacted()
    assert "hunter2" not in str(to_document(redacted))
    assert redacted.system.settings["user"] == "me"
    assert experiment.system.settings["password"] == "hunter2"


def test_each_receiver_of_a_topic_has_its_own_subscription() -> None:
    fast, slow = read(TWO_GROUPS).workload
    assert fast.subscription_of(0) == fast.subscription_of(1)
    assert slow.subscription_of(0) != slow.subscription_of(1)


def test_inspectors_poll_every_five_seconds_and_processes_every_second() -> None:
    experiment = read({"inspect": [{"kind": "process"}, {"kind": "loopback"}, {"kind": "process", "every": "250ms"}]})
    assert [item.period_ns for item in experiment.inspect] == [10**9, 5 * 10**9, 250_000_000]


def test_the_password_of_a_management_url_is_never_written() -> None:
    experiment = read({"inspect": [{"kind": "artemis", "url": "http://admin:s3cret@h:8161/x"}]})
    written = str(to_document(experiment.redacted()))
    assert "s3cret" not in written
    assert "http://admin:***@h:8161/x" in written
    assert experiment_from(to_document(experiment)) == experiment


def test_the_expected_messages_are_known_unless_nobody_can_know_them() -> None:
    def expected(**workload: object) -> int | None:
        return expected_messages(
            experiment_from(
                {"name": "x", "workload": {"senders": 3, **workload}, "phases": {"warmup": "2s", "measure": "8s"}}
            )
        )

    assert expected(rate=50) == 3 * 50 * 10
    assert expected(rate=0) is None


def test_the_offered_rate_follows_the_profile_in_the_measure_phase() -> None:
    workload = {"rate": 1000, "senders": 2, "receivers": 2}
    phases = {"warmup": "5s", "measure": "10s"}
    half = read({"workload": workload, "phases": phases, "profile": {"kind": "on-off", "active": "1s", "idle": "1s"}})
    assert offered(half) == 1000.0
    ramp = read({"workload": workload, "phases": phases, "profile": {"kind": "ramp", "over": "15s"}})
    assert offered(ramp) == pytest.approx(2 * 1000 * (1 / 3 + 1) / 2, rel=1e-3)
    assert offered(read({"workload": {"rate": 0}})) == 0.0


def test_a_count_lasts_until_its_last_message_is_due() -> None:
    experiment = read({"workload": {"rate": 100}, "phases": {"warmup": "1s", "measure": "50 messages"}})
    assert measure_ns(experiment) == 500_000_000
    paused = read(
        {
            "workload": {"rate": 100},
            "phases": {"warmup": "1s", "measure": "50 messages"},
            "profile": {"kind": "on-off", "active": "1s", "idle": "1s"},
        }
    )
    assert measure_ns(paused) == 1_500_000_000


def test_a_duplicate_key_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "twice.yml"
    path.write_text("workload: {rate: 5}\nphases: {measure: 5s}\nworkload: {rate: 6}\n")
    with pytest.raises(ConfigError, match=r"the key 'workload' appears twice .*line 3"):
        load_experiment(path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"workload": {"mode": {"kind": "ehco"}}},
            r"mode.kind: 'ehco' is not a valid value; write open, window, ping-pong or echo; did you mean 'echo'\?",
        ),
        ({"profile": {"kind": "flat"}}, "profile.kind: 'flat' is not a valid value; write constant, ramp, steps"),
    ],
)
def test_an_unknown_kind_is_rejected_with_the_known_ones(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(document)


def test_a_bound_in_the_wrong_unit_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"lost: '<= 5ms' does not fit"):
        read({"checks": {"lost": "<= 5ms"}})
    with pytest.raises(ConfigError, match=r"response_p99: '<= 5' does not fit"):
        read({"search": {"from": 1, "to": 2, "limits": {"response_p99": "<= 5"}}})


def test_run_in_an_address_becomes_the_name_of_the_run_and_nothing_else_changes() -> None:
    experiment = experiment_from(
        {
            "name": "own",
            "workload": [
                {"name": "a", "address": ["queue://q-{run}?durable=yes", "queue://q-{run}?durable=no"]},
                {"name": "b", "address": "topic://t.{run}.{n}", "destinations": 2, "senders": 2, "receivers": 2},
                {"name": "c", "address": "amqp://u:p@host/queue/{run}", "summarize": {"to": "topic://s-{run}"}},
                {"name": "d", "address": "queue://plain"},
            ],
        }
    )
    carried_out = experiment.for_run("0a1b2c3d")
    a, b, c, d = carried_out.workload
    assert a.addresses == ["queue://q-0a1b2c3d?durable=yes", "queue://q-0a1b2c3d?durable=no"]
    assert b.shared_addresses("sender") == ["topic://t.0a1b2c3d.0", "topic://t.0a1b2c3d.1"]
    assert (c.destination, c.summarize and c.summarize.to) == ("0a1b2c3d", "topic://s-0a1b2c3d")
    assert d == experiment.workload[3]
    assert experiment.workload[0].address == "queue://q-{run}?durable=yes"
