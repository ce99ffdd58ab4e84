"""The log analyzer: actions of performance logs, window by window, as numbers and as pictures."""
