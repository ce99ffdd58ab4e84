"""What proves where a note comes from, and what finds repeats?"""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.cli.secret_options import read_token
from crescendo.control.note_queue import NoteQueue
from crescendo.control.replay_window import LAST_COUNTER, WINDOW, ReplayWindow
from crescendo.control.trust import MIN_TOKEN_CHARS, Lab, new_lab
from crescendo.model.errors import ConfigError, PeerError

TOKEN = "0123456789abcdef" * 4


def test_the_key_of_a_run_follows_from_the_token_and_the_name_of_the_run() -> None:
    run = Lab(TOKEN).scope_of("aa")
    assert run == Lab(TOKEN).scope_of("aa")
    assert run.key != Lab(TOKEN).scope_of("ab").key
    assert run.key != new_lab().scope_of("aa").key
    assert run.key.hex() not in repr(run)
    assert TOKEN not in repr(Lab(TOKEN))


def test_a_tag_counts_for_its_run_its_topic_and_its_content_only() -> None:
    run, other = Lab(TOKEN).scope_of("aa"), Lab(TOKEN).scope_of("ab")
    tag = run.tag("/mpt/aa/peer", b"note")
    assert run.is_authentic("/mpt/aa/peer", b"note", tag)
    assert not run.is_authentic("/mpt/aa/maestro", b"note", tag)
    assert not run.is_authentic("/mpt/aa/peer", b"nota", tag)
    assert not run.is_authentic("/mpt/aa/peer", b"note", tag[:-1])
    assert not other.is_authentic("/mpt/aa/peer", b"note", tag)


def test_what_is_encrypted_is_read_by_its_run_only() -> None:
    run, other = Lab(TOKEN).scope_of("aa"), Lab(TOKEN).scope_of("ab")
    content = msgspec.msgpack.encode({"url": "amqp://ada:s3cr3t@host"})
    sealed = run.encrypt(content)
    assert b"s3cr3t" not in sealed
    assert run.decrypt(sealed) == content
    assert run.encrypt(content) != sealed, "a nonce of its own each time"
    for damaged in (sealed[:-1], b"", bytes(40), sealed[:20] + b"!" + sealed[21:]):
        with pytest.raises(PeerError):
            run.decrypt(damaged)
    with pytest.raises(PeerError):
        other.decrypt(sealed)


def test_a_token_that_can_be_guessed_or_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"at least {MIN_TOKEN_CHARS}"):
        Lab("secret")
    file = tmp_path / "lab.token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(str(file))
    file.chmod(0o600)
    lab = read_token(str(file))
    assert lab is not None
    assert lab.scope == Lab(TOKEN).scope


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=300))
def test_every_counter_is_new_once(counters: list[int]) -> None:
    window, seen, highest = ReplayWindow(), set(), -1
    for counter in counters:
        expected = counter not in seen and counter > highest - WINDOW
        assert window.is_new(counter) == expected
        seen.add(counter)
        highest = max(highest, counter)


def test_nothing_follows_a_last_will() -> None:
    window = ReplayWindow()
    assert [window.is_new(counter) for counter in (1, 2, LAST_COUNTER, 3, LAST_COUNTER)] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_of_the_statistics_of_one_process_only_the_latest_waits() -> None:
    notes: NoteQueue[str] = NoteQueue(limit=4)
    for second in range(1000):
        assert notes.put(f"a{second}", replaces="a")
        assert notes.put(f"b{second}", replaces="b")
    assert notes.put("join")
    assert notes.put("ok")
    assert not notes.put("too many"), "the queue is bounded, and says so"
    assert notes.put("a-last", replaces="a"), "a report that replaces another needs no room"
    assert [notes.get() for _ in range(5)] == ["a-last", "b999", "join", "ok", None]
