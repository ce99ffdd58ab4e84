"""The workloads of MLMQ's seed: clients that relay, ask, answer, produce and consume, and account for every message."""
