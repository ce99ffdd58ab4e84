"""Which texts are valid topic names, and which are valid topic filters?

Messages have names, which contain no wildcards; subscriptions have filters, which may (section 4.7 of both
specifications). Returns what is wrong with a text, or None; the caller knows whether the user or the peer wrote it.
"""

SHARE = "$share"


def name_fault(topic: str) -> str | None:
    """Why this is not a valid topic of a message, or None."""
    if not topic:
        return "a topic is empty"
    if "+" in topic or "#" in topic:
        return f"the topic {topic!r} of a message contains a wildcard (+ or #)"
    return None


def filter_fault(text: str) -> str | None:
    """Why this is not a valid filter, or None; covers shared subscriptions too."""
    if text == SHARE or text.startswith(f"{SHARE}/"):
        _, _, share_and_filter = text.partition("/")
        name, _, text = share_and_filter.partition("/")
        if not name or "+" in name or "#" in name or not text:
            return f"a shared subscription is {SHARE}/NAME/FILTER, without wildcards in NAME"
    if not text:
        return "a topic filter is empty"
    levels = text.split("/")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        return f"in the topic filter {text!r} a # does not stand alone as the last level"
    if any("+" in level and level != "+" for level in levels):
        return f"in the topic filter {text!r} a + does not stand alone in its level"
    return None


def shared(group: str, text: str) -> str:
    """A filter whose messages are distributed among all subscribers of the same group."""
    return f"{SHARE}/{group}/{text}"
