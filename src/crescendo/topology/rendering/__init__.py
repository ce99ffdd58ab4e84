"""Configuration files of routers and brokers from generated variables; one module per program."""
