"""Names as people read them: what may have been meant by one, and how one is printed."""

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str], /, *, rule: str = "") -> str:
    """The name that is most like this one, as a question; without any, the rule, or all names."""
    if near := difflib.get_close_matches(name, known := sorted(known), n=1, cutoff=0.5):
        return f"did you mean {near[0]}?"
    return rule or f"known: {', '.join(known) or 'none'}"


def shown(text: object, /, *, keep: str = "") -> str:
    r"""Return a text as it may be printed: a name in a file may have been made to steer a terminal.

    Every letter that is not printable is written as its escape, but for those to `keep`.

    >>> shown("x_0.a\x1b[2J\n")
    'x_0.a\\x1b[2J\\n'
    """
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else letter.encode("unicode_escape").decode()
        for letter in str(text)
    )
