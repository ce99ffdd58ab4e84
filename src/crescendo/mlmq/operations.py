"""What may a client of MLMQ ask for, and what may it be told?

The values are those of the wire (`wire/mlmq_operations.py`), because the load engine and the proof that a system serves
speak them too and know nothing of brokers. This is the name under which MLMQ's own parts use them. Adds nothing.
"""

from crescendo.wire.mlmq_operations import *  # noqa: F403 - all of it, by its own names
