"""How fast can one sender process send without back-pressure, in each protocol?

The peer is the null sink of `crescendo calibrate`: it does the handshake and then counts bytes. Nothing is recorded
here, so this is the batch path alone; `crescendo calibrate` has the ceilings with recording.
"""

from typing import Any

from bench.engines import NO_LIMIT, Child
from bench.results import keep
from crescendo.calibrate.engine_trial import TrialResult, send, unpaced_group
from crescendo.calibrate.null_process import TAG, NullServerCounts, serve_one
from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.load.assignment import Quota
from crescendo.model.protocols import protocol_of
from crescendo.net.sockets import listen

SECONDS = 4
SIZE = 256
WANTED_RATE = 3_000_000
_MAX_CLOSE_BYTES = 400


def _serve(listener: Any, protocol: str) -> NullServerCounts:
    return serve_one(listener, null_server_of(protocol)(SIZE, source=False), source=False)


def _once(protocol: str) -> tuple[TrialResult, NullServerCounts]:
    with listen() as listener:
        sink = Child(_serve, listener, protocol)
        url = f"{protocol_of(protocol).scheme}://127.0.0.1:{listener.getsockname()[1]}"
        sender = Child(lambda: send(url, unpaced_group(protocol, SIZE), Quota(NO_LIMIT, SECONDS * 10**9), tag=TAG))
        return sender.result(), sink.result()


def main() -> None:
    print(f"{SIZE} B into a null sink, nothing settled, one sender process, {SECONDS} s each")
    print("  protocol   messages sent   bytes counted per message    M msg/s   ÷ wanted   µs CPU   batch share")
    for protocol in calibrated_protocols():
        result, counts = _once(protocol)
        length, close_bytes = divmod(counts.octets, result.messages)
        # The sink counts only bytes: if every message arrived, the remainder is no more than a close frame.
        assert close_bytes < _MAX_CLOSE_BYTES, f"{protocol}: the sink counted other bytes than were sent"
        keep("null-sink", f"{protocol}, {SIZE} B", "µs CPU per message", result.cpu_us)
        print(
            f"  {protocol:8} {result.messages:>15,} {counts.octets:>15,} {length:>9} B {result.rate / 1e6:>10.2f} "
            f"{result.rate / WANTED_RATE:>9.2f}× {result.cpu_us:>8.3f} {result.batch_share:>13.1%}",
            flush=True,
        )
    print(f"  wanted: {WANTED_RATE:,} msg/s in every protocol")


if __name__ == "__main__":
    main()
