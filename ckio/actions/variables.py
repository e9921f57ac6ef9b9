"""The variables of a state: how large each is, and what the steps of a chain do to it.

A checkpoint of x_i need not hold all of x_i. A variable is *live* in x_i if a later step, or the
functional, reads it before it is overwritten: all others are dead, and not needed. One that no step
overwrites is the same in every x_i, and stays where it is. What has to be stored is the rest.

The *version* of a variable in x_j is the last step's end up to j at which the forward overwrote it,
0 if none did: a value of the forward is known by variable and version, however often it is computed
and in however many checkpoints it lies.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
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
    """The variables that a piece of code uses and overwrites, as any iterables of names.

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
    """The flow of one step i of a chain: forward, recording, and adjoint.

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


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOGETHER: Final = "+"
"""Between the names of variables that are stored as one; none of them has it in its own."""


def following(happens: Bools, /) -> Ints:
    """For each place, the first from there on at which it happens; the length if there is none."""
    size = len(happens)
    at = np.where(happens, np.arange(size), size)
    first: Ints = np.minimum.accumulate(at[::-1])[::-1]
    return first


def of_a_fresh_model(key: Key, /) -> bool:
    """Return whether a key is a variable of the initial state, which a fresh model has."""
    return key.kind is Kind.RESTART and key.step == 0 and key.name != ""


By: TypeAlias = Literal["flow", "version", "state"]
"""What makes variables one: see `Variables.together`."""


class ChainFlows:
    """The flows of every step of a chain: one for each step, or one that all steps share.

    Raises BadInput where there are not as many as the chain has.
    """

    def __init__(self, steps: Step | Sequence[Step], length: int) -> None:
        self.length = length
        if isinstance(steps, Step):
            self.different, self._which = [steps], np.broadcast_to(np.int64(0), (length,))
        else:
            self.different, self._which = _numbered(steps)
        if len(self._which) != length:
            raise BadInput(f"{len(self._which)} steps say what they use; the chain has {length}")
        self._changes = (np.flatnonzero(self._which[1:] != self._which[:-1]) + 1).tolist()
        self.variables: Names = NOTHING.union(*(step.variables for step in self.different))

    def __getitem__(self, number: int) -> Step:
        """Return the flow of one step."""
        return self.different[self._which.item(number)]

    def runs(self, begin: int, end: int, /) -> Iterator[tuple[int, int]]:
        """The steps [begin, end) in spans, in order, of steps that are all alike."""
        changes = self._changes
        for change in changes[bisect_right(changes, begin) : bisect_left(changes, end)]:
            yield begin, change
            begin = change
        yield begin, end

    def has(self, variable: str, flow: str, names: str, /) -> Bools:
        """Whether each step has the variable among the names of one of its flows."""
        return self.column(lambda step: variable in getattr(getattr(step, flow), names))

    def restores(self, variable: str, /) -> Bools:
        """Whether each adjoint step restores the variable."""
        return self.column(lambda step: variable in step.restored)

    def versions(self, variable: str, /) -> Ints:
        """The version of the variable in x_0, ..., x_n."""
        ends = np.arange(1, self.length + 1) * self.has(variable, "forward", "out")
        return np.maximum.accumulate(np.concatenate(([0], ends)))

    def live(self, variable: str, /, *, seed: bool) -> Bools:
        """Whether the variable is live in x_0, ..., x_n; `seed` says whether x_n is read of it.

        Forward and recording steps read x_i, an adjoint step i reads x_{i+1}. What either of the
        first two does not overwrite in whole, it leaves as it was; and going back, an adjoint step
        finds what no step overwrites from there on, either way.
        """
        back = np.append(False, self.has(variable, "reverse", "use"))
        used = back | np.append(self.has(variable, "forward", "use"), seed)
        used[:-1] |= self.has(variable, "record", "use")
        killed = self.has(variable, "forward", "kill") & self.has(variable, "record", "kill")
        stays = ~(self.has(variable, "forward", "out") | self.has(variable, "reverse", "out"))
        stays &= ~self.restores(variable)
        live: Bools = _before(used, np.append(killed, True))
        live |= _before(back[::-1], np.append(True, ~stays)[::-1])[::-1]
        return live

    def column(self, of: Callable[[Step], bool], /) -> Bools:
        """Something of each step."""
        column: Bools = np.array([of(step) for step in self.different], np.bool_)[self._which]
        return column


@dataclass(frozen=True)
class Variables:
    """The variables of a state, and what all steps do to them.

    Attributes
    ----------
    nbytes : mapping of str to bytes
        How large each variable is. One may stand for several, as `together` puts them.
    steps : Step, or tuple of Step
        What the steps use and overwrite: one for all of them, or one for each.
    seed : frozenset of str
        What the functional and the start of the adjoint read of x_n.
    tape : frozenset of str
        The variables of which the tape of a step is made: as they are in x_i for step i. Empty
        where tapes hold anything else; then nothing is known of what lies in them.

    Raises
    ------
    BadInput
        Where a variable that the steps, the seed or the tape name has no size, or a wrong one.
    """

    nbytes: Mapping[str, int] = field(hash=False)
    steps: Step | tuple[Step, ...]
    seed: Names = NOTHING
    tape: Names = NOTHING

    if TYPE_CHECKING:

        def __init__(
            self,
            nbytes: Mapping[str, int],
            steps: Step | Iterable[Step],
            seed: Iterable[str] = (),
            tape: Iterable[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", _sizes(self.nbytes))
        if not isinstance(self.steps, Step):
            object.__setattr__(self, "steps", _all_steps(self.steps))
        for name in ("seed", "tape"):
            object.__setattr__(self, name, as_names(f"Variables: {name}", getattr(self, name)))
        named = self.seed | self.tape
        for step in self.different:
            named |= step.variables
        if unknown := named - self.nbytes.keys():
            raise BadInput(
                f"Variables: nbytes does not say how large {', '.join(sorted(unknown))} is; it"
                f" knows {', '.join(self.nbytes) or 'none'}"
            )

    @cached_property
    def different(self) -> tuple[Step, ...]:
        """The steps that differ, each once."""
        if isinstance(self.steps, Step):
            return (self.steps,)
        return tuple(self.over(len(self.steps)).different)

    def over(self, length: int, /) -> ChainFlows:
        """The steps of a chain of this length; raises BadInput where there are not as many."""
        known = self._known
        if length not in known:
            known[length] = ChainFlows(self.steps, length)
        return known[length]

    @cached_property
    def _known(self) -> dict[int, ChainFlows]:
        return {}

    def cut(self, length: int, /) -> "Variables":
        """Those of the first so many steps."""
        if isinstance(self.steps, Step):
            return self
        return replace(self, steps=self.steps[:length])

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of checkpoints that are stored variable by variable."""
        return (Kind.RESTART, Kind.TAPE) if self.taped else (Kind.RESTART,)

    def parts(self, key: Key, length: int, /) -> tuple[Key, ...]:
        """The variables of a whole checkpoint, each in its version, in a chain of this length.

        Of x_i those that are live there: the state may hold anything of the others. Of t_i those
        that the tape of this step is made of. What is stored whole is one part.
        """
        if key.name or key.kind not in self.kinds:
            return (key,)
        return tuple(
            Key(key.kind, version.item(key.step), name)
            for name, version, needed in self.columns(key.kind, length)
            if needed[key.step]
        )

    def complete(self, keys: Collection[Key], kind: Kind, length: int, /) -> tuple[int, ...]:
        """The steps of the checkpoints of which all parts are among these keys, in order.

        A fresh model has all variables as they are in x_0: of other states, a variable that is
        still unchanged need not be there. A checkpoint that has no parts is always there.
        """
        there: Bools = np.ones(length + (kind is Kind.RESTART), np.bool_)
        for name, version, needed in self.columns(kind, length):
            stored = [key.step for key in keys if key.kind is kind and key.name == name]
            part: Bools = ~needed | np.isin(version, stored)
            if kind is Kind.RESTART:
                part[1:] |= version[1:] == 0
            there &= part
        return tuple(np.flatnonzero(there).tolist())

    def columns(self, kind: Kind, length: int, /) -> Iterator[tuple[str, Ints, Bools]]:
        """Of each variable that is stored: its name, and for each step its version and its need."""
        over = self.over(length)
        for name in sorted(self.stored if kind is Kind.RESTART else self.taped):
            if kind is Kind.RESTART:
                yield name, over.versions(name), over.live(name, seed=name in self.seed)
            else:
                yield name, over.versions(name)[:-1], over.has(name, "record", "use")

    @cached_property
    def changed(self) -> Names:
        """Variables that some step overwrites, in any direction; all others stay as in x_0."""
        flows = [it for step in self.different for it in (step.forward, step.record, step.reverse)]
        return NOTHING.union(*(flow.out for flow in flows))

    @cached_property
    def live(self) -> Names:
        """Variables that are live in some x_i: all that are read of a state."""
        flows = [it for step in self.different for it in (step.forward, step.record, step.reverse)]
        return self.seed.union(*(flow.use for flow in flows))

    @property
    def stored(self) -> Names:
        """Variables that checkpoints have to hold: live ones that some step overwrites."""
        return self.live & self.changed

    @property
    def taped(self) -> Names:
        """Variables that tapes have to hold: those they are made of that some step overwrites."""
        return self.tape & self.changed

    @property
    def restart(self) -> int:
        """Bytes of a checkpoint that holds `stored`."""
        return sum(self.nbytes[name] for name in self.stored)

    def together(self, by: By = "flow", /) -> "Variables":
        """Variables that are stored as one: read, written and discarded together.

        Of a group it is enough to know one version, and an access for all of it takes the latency
        of a level once. By "flow", a group is what all steps treat alike: then nothing is lost by
        it. By "version" it is all that is stored and is overwritten by the same steps, and by
        "state" all that is stored: ever fewer accesses, and more bytes that are not needed.
        """
        groups: dict[tuple[object, ...], list[str]] = {}
        for name in self.nbytes:
            treated = (name,) if TOGETHER in name else self._treated(name, by)
            groups.setdefault(treated, []).append(name)
        parts: dict[str, Names] = {}
        for group in groups.values():
            is_name = len(group) > 1 and TOGETHER.join(group) in self.nbytes
            for part in [[name] for name in group] if is_name else [group]:
                parts[TOGETHER.join(part)] = frozenset(part)
        nbytes = {name: sum(self.nbytes[part] for part in parts[name]) for name in parts}
        renamed = {step: _renamed(step, parts) for step in self.different}
        steps = (
            renamed[self.steps]
            if isinstance(self.steps, Step)
            else tuple(renamed[step] for step in self.steps)
        )
        return Variables(nbytes, steps, _any_of(parts, self.seed), _any_of(parts, self.tape))

    def _treated(self, name: str, by: By) -> tuple[object, ...]:
        """Return the effects of all steps on a variable, by which variables are grouped."""
        columns = tuple(
            (name in step.restored, *(name in names for names in _sets(step, by)))
            for step in self.different
            if by != "state"
        )
        return name in self.stored, name in self.live, name in self.tape, columns


def _before(happens: Bools, ends: Bools) -> Bools:
    """For each place, whether something happens from there on before, or where, it ends."""
    first = following(happens)
    before: Bools = (first < len(happens)) & (first <= following(ends))
    return before


def _sizes(nbytes: object) -> dict[str, int]:
    if not isinstance(nbytes, Mapping):
        raise BadInput(f"Variables: nbytes = {nbytes!r}; it must say how large each variable is")
    as_names("Variables: nbytes", nbytes)
    for name, size in nbytes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            raise BadInput(
                f"Variables: nbytes[{name!r}] = {size!r}; it must be a whole number of bytes >= 0"
            )
    return {name: int(size) for name, size in nbytes.items()}


def _all_steps(steps: object) -> tuple[Step, ...]:
    sequence = tuple(steps) if isinstance(steps, Iterable) else (steps,)
    for step in sequence:
        if not isinstance(step, Step):
            raise BadInput(f"Variables: steps has {step!r}; it must be a Step, or one for each")
    return sequence


def _sets(step: Step, by: By) -> Iterable[Names]:
    for flow in (step.forward, step.record, step.reverse):
        yield from (flow.use, flow.out, flow.kill) if by == "flow" else (flow.out,)


def _any_of(parts: Mapping[str, Names], names: Names) -> Names:
    return frozenset(name for name in parts if parts[name] & names)


def _all_of(parts: Mapping[str, Names], names: Names) -> Names:
    return frozenset(name for name in parts if parts[name] <= names)


def _renamed(step: Step, parts: Mapping[str, Names]) -> Step:
    """The step on groups: one is used, or perhaps overwritten, if some part of it is."""
    forward, record, reverse = (
        Flow(_any_of(parts, flow.use), _any_of(parts, flow.out), _all_of(parts, flow.kill))
        for flow in (step.forward, step.record, step.reverse)
    )
    return Step(forward, record, reverse, _all_of(parts, step.restored))


def _numbered(steps: Iterable[Step]) -> tuple[list[Step], Ints]:
    """The steps that differ, each once; and which of them each is."""
    given = list(steps)
    numbers: dict[Step, int] = {}
    # Most are the same objects, which are told apart faster than by what is in them.
    of = {id(step): step for step in given}
    number = {known: numbers.setdefault(step, len(numbers)) for known, step in of.items()}
    return list(numbers), np.fromiter((number[id(step)] for step in given), np.int64, len(given))
