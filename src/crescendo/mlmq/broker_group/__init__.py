"""Several brokers and their database, run as one system by `python -m crescendo.mlmq.broker_group PLAN`."""
