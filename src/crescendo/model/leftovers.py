"""What does a run leave behind in a system that was there before?

Queues that it named stay, unless they are temporary or the system deletes them by itself; so do durable subscriptions.
A system that Crescendo started is removed with all it holds. Knows what was asked for, not what the system did.
"""

from crescendo.model.experiment import Experiment
from crescendo.model.protocols import protocol_of
from crescendo.model.units import Duration
from crescendo.model.urls import redact_url

MAX_NAMED = 3


def left_behind(experiment: Experiment) -> list[str]:
    """One phrase per queue or subscription that may still exist, of an experiment as a run carried it out."""
    found: dict[str, None] = {}
    for group in experiment.workload:
        url = group.target.url or experiment.system.url
        if url is None or not group.receivers:
            continue
        options = group.target.options
        if options.subscription is not None:
            expiry_s = protocol_of(group.protocol).subscription_expiry_s
            kept = "" if expiry_s is None else f" (for {Duration(expiry_s * 10**9)})"
            found[f"the durable subscription {options.subscription!r} to {group.target.node}{kept}"] = None
        elif not group.is_topic and not options.temporary and not protocol_of(group.protocol).shares_subscriptions:
            names = list(dict.fromkeys(group.member(index).target.node for index in range(group.destinations)))
            more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
            found[", ".join(names[:MAX_NAMED]) + more] = None
        if group.is_answered:
            found[f"{group.target.node}.reply.*"] = None
    return list(found)


def leftovers_sentence(experiment: Experiment, undelivered: int) -> str:
    """What stays behind, and where; empty if nothing does."""
    found = left_behind(experiment)
    if not found:
        return ""
    where = "" if experiment.system.url is None else f" on {redact_url(experiment.system.url)}"
    held = f", with up to {undelivered:,} messages" if undelivered else ", as far as we know empty"
    return f"left behind{where}: {'; '.join(found)}{held}"
