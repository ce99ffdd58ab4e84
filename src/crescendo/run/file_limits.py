"""How are enough open files allowed for the connections of a run?

Each connection is an open file, and many machines allow a process 1,024 of them unless it raises its own limit. The
system and the peers inherit the raised limit. It is not raised to the maximum: some systems allocate tables of that
size.
"""

import resource

_FILES_BASE = 1024  # libraries, recordings, queues on disk
_FILES_PER_CONNECTION = 4  # both ends, and the reply links of an echo


def allow_connections(count: int) -> None:
    """Raise the limit of open files for this process and its children, as far as the machine allows."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_BASE + _FILES_PER_CONNECTION * count
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
