"""How often does a host ask again who has an address, while nobody answers?

`python -I -S arp_retry_program.py MS`, on a host of the lab: sets the interval of its link and prints `ok`, or why not.
Linux asks once a second, which is what a connection mostly waits for when its link is back. Imports nothing of
Crescendo.
"""

import sys
from pathlib import Path

SETTING = Path("/proc/sys/net/ipv4/neigh/eth0/retrans_time_ms")  # of the network of this process


def main(interval_ms: str) -> None:
    try:
        SETTING.write_text(interval_ms)
        print("ok")
    except OSError as err:
        print(err.strerror or err)


if __name__ == "__main__":
    main(sys.argv[1])
