"""MLMQ's client library: `AsyncClient`, and `Client` for programs that block."""

from crescendo.mlmq.client.async_client import AsyncClient
from crescendo.mlmq.client.backoff import Backoff
from crescendo.mlmq.client.blocking import Client
from crescendo.mlmq.client.exchange import Exchange
from crescendo.mlmq.client.request_errors import RefusedError, UnansweredError
from crescendo.mlmq.client.shared_links import SharedLinks
from crescendo.wire.mlmq.operations import Message, Order, Query

__all__ = [
    "AsyncClient",
    "Backoff",
    "Client",
    "Exchange",
    "Message",
    "Order",
    "Query",
    "RefusedError",
    "SharedLinks",
    "UnansweredError",
]
