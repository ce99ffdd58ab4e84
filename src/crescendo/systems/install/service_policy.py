"""How is a package installed without starting its service?

Debian asks the script policy-rc.d before a package starts a service. While an installation of ours runs, our script is
there. It refuses the programs of that installation, which it knows by a variable of their environment, and passes all
others on to the script that was there before. A helper process restores that one: at the end, or when we and the
installation have been killed. If even the helper is killed, our script refuses nobody, and the next installation
removes it.
"""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from crescendo.processes.child import launch_child

POLICY = Path("/usr/sbin/policy-rc.d")
VARIABLE = "CRESCENDO_INSTALLS"
_MARK = "# Written by crescendo while it installs a package."
_SCRIPT = f"""#!/bin/sh
{_MARK} It refuses nobody else.
[ -z "${VARIABLE}" ] || exit 101  # forbidden by policy
[ ! -x "$0.kept-by-crescendo" ] || exec "$0.kept-by-crescendo" "$@"
"""
_RESTORE = 'read -r _; if [ -e "$1.kept-by-crescendo" ]; then mv -f "$1.kept-by-crescendo" "$1"; else rm -f "$1"; fi'


@contextlib.contextmanager
def services_disabled() -> Iterator[int]:
    """Within this context no package starts its service, if it is installed with VARIABLE in its environment.

    Yields a file descriptor for the installation to inherit: the former policy is not restored while it is open, should
    we be killed.
    """
    with _one_at_a_time():
        _restore_after_kill()
        restore = ["/bin/sh", "-c", _RESTORE, "sh", str(POLICY)]
        with launch_child(restore, on_fork=None, stdin=subprocess.PIPE) as helper:
            if helper.stdin is None:
                return
            try:
                _install_policy()
                yield helper.stdin.fileno()
            finally:
                with contextlib.suppress(OSError):
                    helper.stdin.write(b"\n")
                    helper.stdin.close()


def _install_policy() -> None:
    ours = POLICY.with_name(f"{POLICY.name}.new-by-crescendo")
    ours.write_text(_SCRIPT)
    ours.chmod(0o755)
    if POLICY.exists():
        POLICY.rename(_kept())
    ours.rename(POLICY)


def _restore_after_kill() -> None:
    """What an earlier installation left, if its helper was killed too."""
    if POLICY.exists() and _MARK not in POLICY.read_text(errors="replace"):
        return
    if _kept().exists():
        _kept().rename(POLICY)
    else:
        POLICY.unlink(missing_ok=True)


def _kept() -> Path:
    return POLICY.with_name(f"{POLICY.name}.kept-by-crescendo")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    fd = os.open(POLICY.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
