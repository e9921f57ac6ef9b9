"""What may have been meant by a name that nobody knows."""

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str], /, *, rule: str = "") -> str:
    """The name that is most like this one, as a question; without any, the rule, or all names."""
    if near := difflib.get_close_matches(name, known := sorted(known), n=1, cutoff=0.5):
        return f"did you mean {near[0]}?"
    return rule or f"known: {', '.join(known) or 'none'}"
