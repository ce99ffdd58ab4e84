"""Does a run get the standing peers that it asks for, by host, name or label, that have its protocols?"""

import itertools

import msgspec
import pytest

from crescendo import __version__
from crescendo.control.notes import Identity
from crescendo.control.request_payloads import PeerOffer, Pong
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.run.execute import execute
from crescendo.run.observer import RunObserver
from crescendo.run.recruiting import WantedPeer, _choose, matched, of_this_version

SESSIONS = itertools.count(1)


def standing(
    name: str, host: str, *labels: str, busy: str = "", protocols: tuple[str, ...] = ("amqp10",)
) -> tuple[Identity, Pong, int]:
    offer = PeerOffer("1", "clock", 0, "127.0.0.1", 1, labels=list(labels), protocols=list(protocols))
    pong = Pong(0, 0, 0, 0, 0, "busy" if busy else "free", busy, offer)
    return Identity(name, name.partition("-")[0], host, 1, next(SESSIONS)), pong, 0


SEEN = [
    standing("sender-a", "north", "fast"),
    standing("sender-b", "north"),
    standing("sender-c", "south", "fast"),
    standing("receiver-a", "south"),
    standing("receiver-b", "west", busy="0123"),
]


def chosen(places: dict[str, str]) -> tuple[dict[str, str], str, str]:
    wanted = {peer_id: WantedPeer(peer_id.partition("-")[0], on, ("amqp10",)) for peer_id, on in places.items()}
    found, waiting, missing = _choose(wanted, SEEN)
    return {peer_id: peer.id for peer_id, peer in found.items()}, waiting, missing


def test_by_host_by_name_by_label_or_anywhere() -> None:
    found, waiting, missing = chosen(
        {"sender-0": "south", "sender-1": "sender-a", "sender-2": "", "receiver-0": "south"}
    )
    assert (waiting, missing) == ("", "")
    assert found == {"sender-0": "sender-c", "sender-1": "sender-a", "sender-2": "sender-b", "receiver-0": "receiver-a"}


def test_a_peer_with_a_choice_of_hosts_makes_room_for_one_without() -> None:
    """In any order: only one arrangement of these three exists."""
    wanted = {"sender-0": "", "sender-1": "fast", "sender-2": "north", "sender-3": ""}
    for order in itertools.permutations(list(wanted)[:3]):
        found, waiting, missing = chosen({peer_id: wanted[peer_id] for peer_id in order})
        assert (waiting, missing) == ("", "")
        assert len(set(found.values())) == 3


def test_it_says_for_whom_it_waits_and_where_one_is_missing() -> None:
    assert chosen({"receiver-0": "west"})[1:] == ("receiver-b (busy with run 0123)", "")
    found, waiting, missing = chosen({"sender-0": "east"})
    assert (found, waiting) == ({}, "1 more sender(s) on east")
    assert missing.startswith(
        "this run needs 1 standing sender(s) on east, and 0 answer; start more with: crescendo peer"
    )


def test_a_peer_without_a_protocol_of_the_run_is_passed_over_and_named() -> None:
    with_plugin = standing("sender-d", "south", protocols=("amqp10", "toy"))
    wanted = {"sender-0": WantedPeer("sender", "", ("toy",)), "sender-1": WantedPeer("sender", "", ("amqp10",))}
    found, waiting, missing = _choose(wanted, [SEEN[0], with_plugin])
    assert ({peer_id: peer.id for peer_id, peer in found.items()}, waiting, missing) == (
        {"sender-0": "sender-d", "sender-1": "sender-a"},
        "",
        "",
    )
    _, waiting, missing = _choose(wanted, SEEN[:1])
    assert waiting.startswith("1 more sender(s)")
    assert "1 standing sender(s), and 0 answer (sender-a has no toy: install the plugin there); start more" in missing


def test_a_peer_of_another_version_is_refused_by_name() -> None:
    same, other = standing("sender-a", "north"), standing("sender-b", "south")
    assert other[1].offer is not None
    same = (same[0], msgspec.structs.replace(same[1], offer=PeerOffer(__version__, "clock", 0, "127.0.0.1", 1)), 0)
    unknown = (standing("sender-c", "west")[0], msgspec.structs.replace(other[1], offer=None), 0)
    usable, refused = of_this_version([unknown, other, same])
    assert usable == [same]
    assert refused == [
        f"sender-b on south has version 1, and this is {__version__}; install the same",
        f"sender-c on west has no version, and this is {__version__}; install the same",
    ]


def test_a_matching_is_as_large_as_possible() -> None:
    one, two = SEEN[0][0], SEEN[1][0]
    assert matched({"a": [one, two], "b": [one]}) == {"a": two, "b": one}
    assert len(matched({"a": [one], "b": [one]})) == 1


def test_places_without_standing_peers_are_refused(tmp_path: object) -> None:
    experiment = experiment_from({"name": "placed", "workload": {"rate": 10}, "peers": {"senders": [{"on": "north"}]}})
    with pytest.raises(ConfigError, match=r"peers\.senders: .*--standing"):
        execute(experiment, out=tmp_path, command=(), observer=RunObserver())
    assert experiment.peers.places("sender") == ["north"]
    assert experiment.peers.places("receiver") == [""]
