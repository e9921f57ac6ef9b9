"""What a piece of code does to variables: the sets from which all else follows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ckio.actions.checks import check_line
from ckio.errors import BadInput

Names: TypeAlias = frozenset[str]
"""A set of variables, by name. A variable is one array, scalar or table of the state."""

NOTHING: Names = frozenset()


def as_names(what: str, given: object, /) -> Names:
    """The set of these names; raises BadInput where it is none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadInput(f"{what} = {given!r}; it must be a set of names")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise BadInput(f"{what} has {name!r}; the name of a variable is text, and not empty")
        check_line(f"{what}: the name of a variable", name)
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class Flow:
    """What a piece of code uses and overwrites; any iterable of names is taken.

    Attributes
    ----------
    use : frozenset of str
        Read before the code itself has overwritten them.
    out : frozenset of str
        Perhaps overwritten, in whole or in part.
    kill : frozenset of str
        Surely overwritten, and in whole: what they held before is lost. All of them are in `out`.

    Raises
    ------
    BadInput
        Where `kill` has what `out` has not, or one of the sets is no set of names.
    """

    use: Names = NOTHING
    out: Names = NOTHING
    kill: Names = NOTHING

    if TYPE_CHECKING:

        def __init__(
            self, use: Iterable[str] = (), out: Iterable[str] = (), kill: Iterable[str] = ()
        ) -> None: ...

    def __post_init__(self) -> None:
        for which in ("use", "out", "kill"):
            names = as_names(f"Flow: {which}", getattr(self, which))
            object.__setattr__(self, which, names)
        if odd := self.kill - self.out:
            raise BadInput(
                f"Flow: kill has {', '.join(sorted(odd))}, which out has not: what is surely"
                " overwritten is perhaps overwritten, too"
            )

    def then(self, after: "Flow", /) -> "Flow":
        """The flow of this code and, after it, of another: out(A; B) = out(A) | out(B)."""
        return Flow(
            use=self.use | (after.use - self.kill),
            out=self.out | after.out,
            kill=self.kill | after.kill,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What one step i of a chain does to the state, forward, recording and back.

    Forward and recording take x_i to x_{i+1}. The adjoint step finds some values on its tape, about
    which nothing need be said here; others it reads where they are, in the state.

    Attributes
    ----------
    forward : Flow
        Of the step under Advance.
    record : Flow
        Of the step under Record; as `forward` if not given. It surely needs what it uses here, for
        its tape. What the forward step uses beyond that, it needs only where the state that it
        leaves is needed further on: not if it is reversed at once. What it overwrites beyond the
        forward step holds no value of the forward from then on.
    reverse : Flow
        Of the adjoint step. It finds what it uses as the recording step left it, in x_{i+1}.
    restored : frozenset of str
        What the adjoint step puts back as it was in x_i, from its tape. All else that it
        overwrites holds no value of the forward from then on.

    Raises
    ------
    BadInput
        Where the recording step leaves out what the forward step computes.
    """

    forward: Flow
    record: Flow
    reverse: Flow
    restored: Names

    def __init__(
        self,
        forward: Flow,
        record: Flow | None = None,
        reverse: Flow = Flow(),
        restored: Iterable[str] = (),
    ) -> None:
        object.__setattr__(self, "forward", forward)
        object.__setattr__(self, "record", forward if record is None else record)
        object.__setattr__(self, "reverse", reverse)
        object.__setattr__(self, "restored", as_names("Step: restored", restored))
        if missing := forward.out - self.record.out:
            raise BadInput(
                f"Step: forward overwrites {', '.join(sorted(missing))}, record does not: a"
                " recording step leaves the same state"
            )

    @property
    def variables(self) -> Names:
        """All that the step touches."""
        flows = self.forward, self.record, self.reverse
        return self.restored.union(*(flow.use | flow.out for flow in flows))

    @property
    def adjoint(self) -> Flow:
        """Of the step recorded and reversed at once; as out(PUSH v; A; POP v) = out(A) - {v}."""
        record = self.record
        if self.reverse.use & self.forward.out:  # it reads in place what the forward computes
            record = Flow(record.use | self.forward.use, record.out, record.kill)
        both = record.then(self.reverse)
        return Flow(both.use, both.out - self.restored, both.kill - self.restored)
