"""The results of a run for spreadsheets, CI servers and monitoring."""
