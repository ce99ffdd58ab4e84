"""The log analyzer: statistics and plots of the actions in performance logs, per window of time."""
