"""How many connections may the processes of a run have?

Each is an open file, and many machines allow a process 1,024 of them, or as many more as it asks for. What we ask for,
the system and the peers that we start inherit. Not all that could be had: some systems make tables of that size.
"""

import resource

_FILES_APART = 1024  # libraries, recordings, queues on disk
_FILES_EACH = 4  # both ends, and the ways back of an echo


def allow_connections(count: int) -> None:
    """Let this process and those that it will start open enough files, as far as the machine lets us."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_APART + _FILES_EACH * count
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
