"""The agent: runs commands of others beside the system, within an allow-list and limits."""
