"""Who may connect to the embedded broker?

Only a client that gives the user and password of the run, compared in constant time. Runs inside the broker's process.
"""

import hmac
from dataclasses import dataclass

from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session


class BrokerAccount(BaseAuthPlugin):  # type: ignore[misc]  # amqtt has no types
    """The one account of an embedded broker."""

    @dataclass
    class Config:
        user: str = ""
        password: str = ""

    async def authenticate(self, *, session: Session) -> bool:
        given = f"{session.username or ''}\0{session.password or ''}"
        expected = f"{self.config.user}\0{self.config.password}"
        return bool(self.config.password) and hmac.compare_digest(given.encode(), expected.encode())
