"""What did the original MLMQ call our requests, answers and statements in its performance logs?

Only names, so that one analyser can read the logs of both. Where the original had no counterpart the name is ours, in
its style. Writes nothing.
"""

from typing import Final

from crescendo.wire.mlmq import operations as op

REQUESTS: Final[dict[type, str]] = {
    op.Register: "RegistrationRequest",
    op.Deregister: "DeregistrationRequest",
    op.CreateQueue: "CreateQueueRequest",
    op.DeleteQueue: "DeleteQueueRequest",
    op.LookupClient: "LookupClientRequest",
    op.LookupQueue: "LookupClientQueueRequest",
    op.Send: "SendMessageRequest",
    op.Peek: "PeekMessageRequest",
    op.Dequeue: "DequeueMessageRequest",
    op.Acknowledge: "AcknowledgeMessageRequest",
    op.Extend: "ExtendLeaseRequest",
    op.Pending: "QueuesWithPendingMessagesRequest",
    op.Abandon: "AbandonRequest",
    op.SendMany: "SendMessagesRequest",
    op.ConfigureQueue: "ConfigureQueueRequest",
}
ANSWERS: Final[dict[type, str]] = {
    op.Registered: "RegistrationResponse",
    op.ClientFound: "LookupClientResponse",
    op.QueueFound: "QueueResponse",
    op.Done: "OkResponse",
    op.Sent: "SendMessageResponse",
    op.Messages: "MessageResponse",
    op.Settled: "SettledResponse",
    op.PendingFound: "QueuesWithPendingMessagesResponse",
    op.Refused: "ExceptionResponse",
}
STATEMENTS: Final[dict[type, str]] = {
    op.Register: "insertNewClient",
    op.Deregister: "deleteClient",
    op.CreateQueue: "createQueue",
    op.DeleteQueue: "deleteQueue",
    op.LookupClient: "getClientId",
    op.LookupQueue: "getQueueByClientId",
    op.Send: "insertMessage",
    op.Peek: "peekMessage",
    op.Dequeue: "dequeueMessage",
    op.Acknowledge: "acknowledgeMessage",
    op.Extend: "extendLease",
    op.Pending: "getPubQueues",
    op.Abandon: "abandonAnswer",
    op.SendMany: "insertMessages",
    op.ConfigureQueue: "configureQueue",
}
