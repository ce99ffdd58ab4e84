"""Does every refusal of a broker over OpenWire and Core reach us in its own words, and never as a wait without end?

The brokers of this module forbid, miss or limit some queues; all others are as usual.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from crescendo.load.protocols.registry import driver_of
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.schema import Settlement
from crescendo.systems.base import Blueprint
from crescendo.systems.install.java import PROBE_QUEUE
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.activemq import ActiveMQ
from crescendo.systems.kinds.artemis import Artemis
from engine_threads import until
from pumping import pumped, ready, refusal

ROLE = "crescendo"
ALL = ["createAddress", "createDurableQueue", "createNonDurableQueue", "consume", "browse", "send"]
ARTEMIS_RULES = {
    "<security-settings>": '<security-settings><security-setting match="forbidden.#">'
    + "".join(f'<permission type="{one}" roles="nobody"/>' for one in ALL)
    + "</security-setting>",
    "<address-settings>": '<address-settings><address-setting match="full.#">'
    "<max-size-bytes>20000</max-size-bytes><address-full-policy>FAIL</address-full-policy></address-setting>"
    '<address-setting match="blocked.#"><max-size-bytes>20000</max-size-bytes>'
    "<address-full-policy>BLOCK</address-full-policy></address-setting>"
    '<address-setting match="missing.#"><auto-create-addresses>false</auto-create-addresses>'
    "<auto-create-queues>false</auto-create-queues></address-setting>",
}
ACTIVEMQ_RULES = {
    "</plugins>": "<authorizationPlugin><map><authorizationMap><authorizationEntries>"
    f'<authorizationEntry queue="full.>" read="{ROLE}" write="{ROLE}" admin="{ROLE}"/>'
    f'<authorizationEntry queue="{PROBE_QUEUE}" read="{ROLE}" write="{ROLE}" admin="{ROLE}"/>'
    f'<authorizationEntry topic=">" read="{ROLE}" write="{ROLE}" admin="{ROLE}"/>'
    '<authorizationEntry queue="forbidden.>" read="nobody" write="nobody" admin="nobody"/>'
    f'<authorizationEntry queue="missing.>" read="{ROLE}" write="{ROLE}" admin="nobody"/>'
    "</authorizationEntries></authorizationMap></map></authorizationPlugin></plugins>",
    "<policyEntries>": '<policyEntries><policyEntry queue="full.>" memoryLimit="20000">'
    "<pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry>",
    "<systemUsage>\n        <memoryUsage>": '<systemUsage sendFailIfNoSpace="true">\n        <memoryUsage>',
}


def with_rules(blueprint: Blueprint, file: str, rules: dict[str, str]) -> Blueprint:
    text = blueprint.files[file]
    for place, rule in rules.items():
        assert text.count(place) == 1, place
        text = text.replace(place, rule)
    return replace(blueprint, files={**blueprint.files, file: text})


class StrictArtemis(Artemis):
    def plan(self, *arguments: Any) -> Blueprint:
        return with_rules(super().plan(*arguments), "etc/broker.xml", ARTEMIS_RULES)


class StrictActiveMQ(ActiveMQ):
    def plan(self, *arguments: Any) -> Blueprint:
        return with_rules(super().plan(*arguments), "conf/activemq.xml", ACTIVEMQ_RULES)


@pytest.fixture(scope="module", params=[StrictArtemis(), pytest.param(StrictActiveMQ(), marks=pytest.mark.soak)])
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    directory = tmp_path_factory.mktemp("strict") / "instance"
    instance = start(request.param, {}, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


@pytest.fixture(params=["openwire", "core"])
def protocol(strict: RunningInstance, request: pytest.FixtureRequest) -> str:
    if request.param not in strict.endpoints:
        pytest.skip("this broker does not speak it")
    return str(request.param)


def group(protocol: str, name: str, size: int = 64, settle: Settle = Settle.AT_LEAST_ONCE) -> Group:
    return Group(address=f"queue://{name}", protocol=protocol, size=PayloadSize.fixed(size), settle=settle)


@pytest.mark.parametrize("role", ["sender", "receiver"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("forbidden.one", "does not have permission|not authorized"),
        ("missing.one", "does not exist|not authorized to create"),
    ],
)
def test_a_queue_that_we_may_not_use_is_refused(
    strict: RunningInstance, protocol: str, role: Any, name: str, words: str
) -> None:
    reason = refusal(driver_of(protocol, role)(strict.endpoints[protocol], group(protocol, name)))
    assert reason.startswith("the system refused: ")
    assert re.search(words, reason), reason
    assert name in reason or "missing" in reason, reason


def test_a_message_that_does_not_fit_is_refused_and_the_earlier_ones_are_not(
    strict: RunningInstance, protocol: str
) -> None:
    some = group(protocol, f"full.{protocol}", 1000)
    sender = driver_of(protocol, "sender")(strict.endpoints[protocol], some)
    accepted: list[int] = []
    rejected: list[int] = []
    with closing(ready(sender)):
        sent = 0

        def send_until_refused() -> bool:
            nonlocal sent
            if sender.room() and sent < 200:
                sender.send(sent, 1)
                sent += 1
            sender.flush()
            for outcome in sender.pump():
                (accepted if outcome.settlement == Settlement.ACCEPTED else rejected).extend(outcome.seqs)
            return sender.closed is not None

        until(send_until_refused)
        assert re.match("the system refused a message: .*(full|Limit)", str(sender.closed)), sender.closed
    assert rejected == [len(accepted)]
    assert len(accepted) > 3
    with closing(ready(driver_of(protocol, "receiver")(strict.endpoints[protocol], some))) as receiver:
        receiver.begin()
        received: list[bytes] = []
        until(
            lambda: (
                received.extend(body for some in pumped(receiver) for body in some),
                len(received) >= len(accepted),
            )[-1]
        )


def test_a_full_address_refuses_credit_to_senders_that_expect_no_response(strict: RunningInstance) -> None:
    """Only Core has credit for senders; over OpenWire the broker drops such messages without a word."""
    if "core" not in strict.endpoints:
        pytest.skip("this broker does not speak it")
    some = group("core", "full.unanswered", 1000, Settle.AT_MOST_ONCE)
    sender = driver_of("core", "sender")(strict.endpoints["core"], some)
    with closing(ready(sender)):

        def send_until_refused() -> bool:
            if count := sender.room():
                sender.send(0, count)
            sender.flush()
            sender.pump()
            return sender.closed is not None

        until(send_until_refused)
    assert sender.closed == "the system refused credit: address full.unanswered is full"


def test_a_full_address_that_blocks_holds_senders_back_until_there_is_room(strict: RunningInstance) -> None:
    """By the credit of Core; over OpenWire the broker stops reading."""
    if "core" not in strict.endpoints:
        pytest.skip("this broker does not speak it")
    some = group("core", "blocked.one", 1000)
    sender = driver_of("core", "sender")(strict.endpoints["core"], some)
    sent = settled = 0
    with closing(ready(sender)):

        def send_what_fits() -> bool:
            nonlocal sent, settled
            if count := sender.room():
                sender.send(sent, count)
                sent += count
            sender.flush()
            settled += sum(len(outcome.seqs) for outcome in sender.pump())
            assert sender.closed is None, sender.closed
            return sent == settled and not sender.room()

        until(lambda: send_what_fits() and sent > 0)
        held = sent
        with closing(ready(driver_of("core", "receiver")(strict.endpoints["core"], some))) as receiver:
            receiver.begin()
            until(lambda: (pumped(receiver), send_what_fits(), sent > held)[-1])
    assert held >= 500
