"""Which steps are looked at closely, where to look at all of them takes too long."""

from collections.abc import Iterator


def seldom() -> Iterator[int]:
    """The first three, which are often special, and ever fewer of the later ones.

    If a program does something in every so many steps only, it is among them sooner or later; of
    steps at distances that double, all but one would be even.

    >>> from itertools import islice
    >>> list(islice(seldom(), 10))
    [0, 1, 2, 4, 7, 12, 20, 33, 54, 88]
    """
    due, then = 1, 2
    while True:
        yield due - 1
        due, then = then, due + then
