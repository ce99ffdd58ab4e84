"""The lab in a browser: experiments, runs as they happen, their results.

Starts runs as processes of their own and shows what lies on disk; measures and judges nothing itself.
"""
