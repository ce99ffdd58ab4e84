"""The original MLMQ's workloads: clients that relay, request, respond, produce or consume, and count every message."""
