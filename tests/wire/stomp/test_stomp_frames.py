"""Are STOMP frames written and read as each version's specification says?

The bytes are composed by hand, or read and written by stomp.py, which shares no code with ours.
"""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stomp.utils import Frame as ForeignFrame
from stomp.utils import convert_frame, parse_frame

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.stomp.escaping import Version, escape, unescape
from crescendo.wire.stomp.frames import MAX_COMMAND_BYTES, MAX_HEADERS, Frame, Reader, encode_frame
from stomp_streams import raw

# stomp.py splits lines differently from str.splitlines, and trims; the compared texts avoid both.
plain = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r:\\"), max_size=12)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


def read_one(octets: bytes, version: Version = Version.V1_2, **limits: int) -> Frame:
    reader = Reader(**limits)
    reader.version = version
    located = reader.read(bytearray(octets), 0, len(octets))
    assert located is not None, "incomplete"
    assert located.end == len(octets)
    return Frame(located.frame.command, located.frame.headers, bytes(located.frame.body))


# -- escaping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "text", "escaped"),
    [
        (Version.V1_0, "a:b\\c", "a:b\\c"),
        (Version.V1_1, "a:b\\c\nd", "a\\cb\\\\c\\nd"),
        (Version.V1_2, "a:b\\c\nd\re", "a\\cb\\\\c\\nd\\re"),
        (Version.V1_2, "\\n", "\\\\n"),
    ],
)
def test_each_version_escapes_what_its_specification_names(version: Version, text: str, escaped: str) -> None:
    assert escape(text, version) == escaped
    assert unescape(escaped, version) == text


@pytest.mark.parametrize(
    ("version", "text"),
    [(Version.V1_0, "a\nb"), (Version.V1_0, "a\rb"), (Version.V1_1, "a\rb"), (Version.V1_2, "a\0b")],
)
def test_text_that_a_version_cannot_escape_never_becomes_a_header(version: Version, text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot carry"):
        encode_frame("SEND", {"destination": text}, version=version)


@pytest.mark.parametrize(
    ("version", "text"),
    [(Version.V1_1, "\\r"), (Version.V1_1, "\\t"), (Version.V1_2, "\\t"), (Version.V1_2, "a\\"), (Version.V1_2, "\\C")],
)
def test_an_unknown_escape_sequence_is_the_peers_fault(version: Version, text: str) -> None:
    with pytest.raises(PeerError, match="not an escape sequence"):
        read_one(raw("MESSAGE", [f"a:{text}"]), version)


def test_1_0_reads_backslashes_as_they_are() -> None:
    assert read_one(raw("MESSAGE", ["a:b\\nc"]), Version.V1_0).headers == {"a": "b\\nc"}


@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
def test_connect_frames_are_never_escaped(command: str) -> None:
    octets = encode_frame(command, {"passcode": "a:b\\c"}, version=Version.V1_2)
    assert octets == raw(command, ["passcode:a:b\\c"])
    assert read_one(octets).headers == {"passcode": "a:b\\c"}
    with pytest.raises(ConfigError):
        encode_frame(command, {"passcode": "a\nlogin:root"}, version=Version.V1_2)


def test_a_name_with_a_colon_cannot_be_written_in_1_0() -> None:
    with pytest.raises(ConfigError, match="cannot name"):
        encode_frame("SEND", {"a:b": "c"}, version=Version.V1_0)
    assert encode_frame("SEND", {"a:b": "c"}, version=Version.V1_1) == raw("SEND", ["a\\cb:c"])


# -- frames ----------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.dictionaries(names, texts, max_size=5), st.binary(max_size=50), st.sampled_from([Version.V1_1, Version.V1_2]))
def test_decoding_reverses_encoding(headers: dict[str, str], body: bytes, version: Version) -> None:
    headers.pop("content-length", None)
    if version is Version.V1_1:
        headers = {name.replace("\r", ""): value.replace("\r", "") for name, value in headers.items()}
        headers.pop("", None)
    octets = encode_frame("SEND", headers, body, version=version, sized=True)
    assert read_one(octets, version) == Frame("SEND", {"content-length": str(len(body)), **headers}, body)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["a", "b-c", "id", "x:y", "n\\"]), texts, max_size=5), st.binary(max_size=50))
def test_stomp_py_reads_what_we_write(headers: dict[str, str], body: bytes) -> None:
    headers = {name: "".join(value.split()) for name, value in headers.items()}
    found: Any = parse_frame(encode_frame("SEND", headers, body, version=Version.V1_2, sized=True))
    assert (found.cmd, found.body) == ("SEND", body + b"\0")
    assert found.headers == {"content-length": str(len(body)), **headers}


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["a", "b-c", "id"]), plain, max_size=5), st.binary(min_size=1, max_size=50))
def test_we_read_what_stomp_py_writes(headers: dict[str, str], body: bytes) -> None:
    sized = {**headers, "content-length": str(len(body))}
    octets = b"".join(part.encode() if isinstance(part, str) else part for part in _written(sized, body))
    assert read_one(octets) == Frame("SEND", sized, body)


def _written(headers: dict[str, str], body: bytes) -> list[Any]:
    parts: list[Any] = convert_frame(ForeignFrame("SEND", dict(headers), body))
    return parts


def test_the_first_of_repeated_headers_wins() -> None:
    assert read_one(raw("MESSAGE", ["foo:World", "bar:x", "foo:Hello"])).headers == {"foo": "World", "bar": "x"}
    assert read_one(raw("MESSAGE", ["a\\cb:1", "z:\\\\", "a\\cb:2"])).headers == {"a:b": "1", "z": "\\"}


@pytest.mark.parametrize("version", list(Version))
def test_lines_may_end_with_carriage_returns(version: Version) -> None:
    frame = read_one(raw("MESSAGE", ["a:b", "c:", "content-length:3"], b"\r\n\0", end="\r\n"), version)
    assert frame == Frame("MESSAGE", {"a": "b", "c": "", "content-length": "3"}, b"\r\n\0")


def test_a_body_without_a_length_ends_at_the_first_nul() -> None:
    assert read_one(raw("MESSAGE", ["a:b"], b"x\n\ny")).body == b"x\n\ny"


def test_values_keep_their_spaces_and_colons() -> None:
    assert read_one(raw("MESSAGE", ["a: b ", "c:d:e"])).headers == {"a": " b ", "c": "d:e"}


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        (raw("MESSAGE", ["content-length:2"], b"abc"), "does not end"),
        (raw("MESSAGE", ["content-length:-1"]), "not a valid content-length"),
        (raw("MESSAGE", ["content-length:1_0"]), "not a valid content-length"),
        (raw("MESSAGE", ["content-length:²"]), "not a valid content-length"),
        (raw("MESSAGE", ["content-length:"]), "not a valid content-length"),
        (raw("MESSAGE", ["content-length:" + "9" * 5000]), "not a valid content-length"),
        (raw("MESSAGE", ["content-length:129"]), "limit"),
        (raw("MESSAGE", body=b"x" * 129), "more than 128"),
        (raw("MESSAGE", ["no colon"]), "without a colon"),
        (b"MESSAGE\na:\xff\n\n\0", "not UTF-8"),
        (raw("MESSAGE", ["a:b\rc"]), "carriage return"),
        (raw("MESSAGE", ["a:b\r\r"]), "carriage return"),
        (b"RECEIPT\nreceipt-id:1\0\n\n\0", "ends within"),
        (raw("MESSAGE", ["a:" + "b" * 9000]), "more than 8192"),
        (raw("MESSAGE", ["a:"] * MAX_HEADERS), "headers"),
        (b"AMQP\0\x01\x00\x00", "not the start"),
        (b"x" * MAX_COMMAND_BYTES, "not the start"),
    ],
)
def test_an_invalid_frame_is_the_peers_fault_in_any_chunking(octets: bytes, complaint: str) -> None:
    for step in (len(octets), 1):
        with pytest.raises(PeerError, match=complaint):
            read_in_steps(octets, step)


def read_in_steps(octets: bytes, step: int) -> None:
    reader = Reader(max_header_bytes=8192, max_body_bytes=128)
    for end in range(step, len(octets) + 1, step):
        assert reader.read(bytearray(octets), 0, end) is None


def test_content_length_is_computed_not_given() -> None:
    with pytest.raises(ConfigError):
        encode_frame("SEND", {"content-length": "3"}, b"abcd", version=Version.V1_2)
    with pytest.raises(ConfigError, match="NUL"):
        encode_frame("SEND", {}, b"a\0b", version=Version.V1_2)


@pytest.mark.parametrize("prefix", [b"MESSAGE\n", b"MESSAGE\n\n"], ids=["headers", "body"])
def test_a_frame_that_arrives_byte_by_byte_takes_linear_time(prefix: bytes) -> None:
    def cost_s(count: int) -> float:
        octets = bytearray(prefix + b"a:\n" * (count // 3) if prefix.count(b"\n") == 1 else prefix + b"x" * count)
        reader = Reader(max_header_bytes=10**9, max_body_bytes=10**9)
        start_s = time.process_time()
        for end in range(1, len(octets)):
            assert reader.read(octets, 0, end) is None
        return time.process_time() - start_s

    assert min(cost_s(160_000) for _ in range(2)) < 10 * min(cost_s(40_000) for _ in range(2))
