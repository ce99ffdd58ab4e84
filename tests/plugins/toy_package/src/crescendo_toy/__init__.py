"""One plugin of each kind, for Crescendo's own tests and for people who write theirs."""
