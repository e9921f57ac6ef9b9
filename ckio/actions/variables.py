"""The variables of a state: their sizes, and what the steps of a chain do to them.

A checkpoint of x_i need not contain all of x_i. A variable is *live* in x_i if a later step, or the
cost function, reads it before it is overwritten. All other variables are dead, and are not needed.
A variable that no step overwrites is the same in every x_i, and remains in the model. Only the
live variables that some step overwrites must be stored.

The *version* of a variable in x_j is the end of the last step up to j whose forward step overwrote
it, or 0 if no step did. The variable and the version determine a value of the forward sweep,
however often it is computed, and in however many checkpoints it is stored. For example, if steps 0
and 2 overwrite u, then u has version 0 in x_0, version 1 in x_1 and x_2, and version 3 in x_3:

>>> writes, reads = Step(Flow(out={"u"})), Step(Flow(use={"u"}))
>>> ChainFlows([writes, reads, writes], 3).versions("u")
array([0, 1, 1, 3])
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.checks import check_line, check_size
from ckio.errors import BadInput

Names: TypeAlias = frozenset[str]
"""A set of variables, by name. A variable is one array, scalar or table of the state."""

NOTHING: Names = frozenset()


def as_names(what: str, given: object, /) -> Names:
    """Return the set of these names; raise BadInput if they are not names."""
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
    """The variables that a piece of code uses and overwrites. Any iterables of names are accepted.

    Attributes
    ----------
    use : frozenset of str
        Variables that are read before the code itself has overwritten them.
    out : frozenset of str
        Variables that may be overwritten, in whole or in part.
    kill : frozenset of str
        Variables that are always overwritten in whole, so that their old value is lost. All of
        them are in `out`.

    Raises
    ------
    BadInput
        If `kill` has a name that `out` does not have, or one of the three is not a set of names.
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
                f"Flow: kill has {', '.join(sorted(odd))}, but out does not: a variable that is"
                " always overwritten must be in out, too"
            )

    def then(self, after: "Flow", /) -> "Flow":
        """Return the flow of this code, then `after`.

        For example, if this code overwrites u, a later use of u is no use of the value before:

        >>> both = Flow(out={"u"}, kill={"u"}).then(Flow(use={"u", "v"}))
        >>> sorted(both.use), sorted(both.out)
        (['v'], ['u'])
        """
        return Flow(
            use=self.use | (after.use - self.kill),
            out=self.out | after.out,
            kill=self.kill | after.kill,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """The flow of one step i of a chain: forward, recording, and adjoint.

    The forward step and the recording step take x_i to x_{i+1}. The adjoint step reads some values
    from its tape, which are not listed here, and other values from the state.

    Attributes
    ----------
    forward : Flow
        The flow of the step under Advance.
    record : Flow
        The flow of the step under Record; by default, that of `forward`. The variables that it uses
        are always needed, for the tape. Further variables that the forward step uses are needed
        only if the state after the step is needed later, and not if the step is reversed
        immediately. Further variables that it overwrites have no value of the forward sweep after
        it.
    reverse : Flow
        The flow of the adjoint step. It reads variables as the recording step left them, in
        x_{i+1}.
    restored : frozenset of str
        Variables that the adjoint step sets back to their value in x_i, from its tape. All others
        that it overwrites have no value of the forward sweep after it.

    Raises
    ------
    BadInput
        If the recording step does not overwrite a variable that the forward step overwrites.
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
                f"Step: forward overwrites {', '.join(sorted(missing))}, record does not: the"
                " state after a recording step must be the same"
            )

    @property
    def variables(self) -> Names:
        """All variables that the step uses or overwrites."""
        flows = self.forward, self.record, self.reverse
        return self.restored.union(*(flow.use | flow.out for flow in flows))

    @property
    def adjoint(self) -> Flow:
        """The flow of the step if it is recorded and reversed immediately.

        A variable v that the tape saves and the adjoint restores is not overwritten:
        out(PUSH v; A; POP v) = out(A) - {v}.
        """
        record = self.record
        if self.reverse.use & self.forward.out:  # it reads values of the forward step in the state
            record = Flow(record.use | self.forward.use, record.out, record.kill)
        both = record.then(self.reverse)
        return Flow(both.use, both.out - self.restored, both.kill - self.restored)


Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TOGETHER: Final = "+"
"""The separator between the names of variables that are stored as one; no name may contain it."""


def following(happens: Bools, /) -> Ints:
    """Return, for each index, the first index from it where `happens` is true; the length if none.

    >>> following(np.array([False, True, False]))
    array([1, 1, 3])
    """
    size = len(happens)
    at = np.where(happens, np.arange(size), size)
    first: Ints = np.minimum.accumulate(at[::-1])[::-1]
    return first


def of_a_fresh_model(key: Key, /) -> bool:
    """Return whether a key is a variable of the initial state, which every new model has."""
    return key.kind is Kind.RESTART and key.step == 0 and key.name != ""


class ChainFlows:
    """The flows of every step of a chain: one Step for each step, or one that all steps share.

    Raises BadInput if the number of flows is not the number of steps.
    """

    def __init__(self, steps: Step | Sequence[Step], length: int) -> None:
        self.length = length
        if isinstance(steps, Step):
            self.different, self._which = [steps], np.broadcast_to(np.int64(0), (length,))
        else:
            self.different, self._which = _numbered(steps)
        if len(self._which) != length:
            raise BadInput(
                f"{len(self._which)} steps say what they use; the chain has {length}: give one Step"
                " for all steps, or one for each"
            )
        self._changes = (np.flatnonzero(self._which[1:] != self._which[:-1]) + 1).tolist()
        self.variables: Names = NOTHING.union(*(step.variables for step in self.different))

    def __getitem__(self, number: int) -> Step:
        """Return the flow of one step."""
        return self.different[self._which.item(number)]

    def runs(self, begin: int, end: int, /) -> Iterator[tuple[int, int]]:
        """Yield the spans of equal steps in [begin, end), in order."""
        changes = self._changes
        for change in changes[bisect_right(changes, begin) : bisect_left(changes, end)]:
            yield begin, change
            begin = change
        yield begin, end

    def has(self, variable: str, flow: str, names: str, /) -> Bools:
        """Return whether each step has the variable among these names of this flow.

        `flow` is "forward", "record" or "reverse", and `names` is "use", "out" or "kill".
        """
        return self.column(lambda step: variable in getattr(getattr(step, flow), names))

    def restores(self, variable: str, /) -> Bools:
        """Return whether each adjoint step restores the variable."""
        return self.column(lambda step: variable in step.restored)

    def versions(self, variable: str, /) -> Ints:
        """Return the version of the variable in x_0, ..., x_n."""
        ends = np.arange(1, self.length + 1) * self.has(variable, "forward", "out")
        return np.maximum.accumulate(np.concatenate(([0], ends)))

    def live(self, variable: str, /, *, seed: bool) -> Bools:
        """Return whether the variable is live in x_0, ..., x_n; with `seed`, it is read from x_n.

        Forward and recording steps read x_i. An adjoint step i reads x_{i+1}. If neither the
        forward nor the recording step overwrites the whole variable, it keeps its value. In the
        reverse sweep, an adjoint step reads a variable of an earlier state if no step, forward or
        adjoint, has overwritten it since.
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
        """Return the value of `of` for each step."""
        column: Bools = np.array([of(step) for step in self.different], np.bool_)[self._which]
        return column


@dataclass(frozen=True)
class Variables:
    """The variables of a state, and what all steps do to them.

    Attributes
    ----------
    nbytes : mapping of str to bytes
        The size of each variable. One variable may stand for several, as in `together`.
    steps : Step, or tuple of Step
        The variables that the steps use and overwrite: one Step for all steps, or one for each.
    seed : frozenset of str
        The variables that the cost function and the start of the adjoint read from x_n.
    tape : frozenset of str
        The variables that the tape of step i contains, with their values in x_i. Empty if tapes
        contain other data; then nothing is known of their contents.

    Raises
    ------
    BadInput
        If a variable of the steps, the seed or the tape has no size, or a wrong one.
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
                f" has {', '.join(self.nbytes) or 'none'}"
            )

    @cached_property
    def different(self) -> tuple[Step, ...]:
        """The different steps, each once."""
        if isinstance(self.steps, Step):
            return (self.steps,)
        return tuple(self.over(len(self.steps)).different)

    def over(self, length: int, /) -> ChainFlows:
        """Return the flows for a chain of this length; raise BadInput if there are not as many."""
        known = self._known
        if length not in known:
            known[length] = ChainFlows(self.steps, length)
        return known[length]

    @cached_property
    def _known(self) -> dict[int, ChainFlows]:
        return {}

    def cut(self, length: int, /) -> "Variables":
        """Return the variables for the first `length` steps."""
        if isinstance(self.steps, Step):
            return self
        return replace(self, steps=self.steps[:length])

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of checkpoints that are stored variable by variable."""
        return (Kind.RESTART, Kind.TAPE) if self.taped else (Kind.RESTART,)

    def parts(self, key: Key, length: int, /) -> tuple[Key, ...]:
        """Return the keys of the variables of a checkpoint, for a chain of this length.

        Restart data x_i has the variables that are live in x_i; all others may have any value. A
        tape t_i has the variables that the tape of step i contains. A checkpoint that is stored
        whole has one part.
        """
        if key.name or key.kind not in self.kinds:
            return (key,)
        return tuple(
            Key(key.kind, version.item(key.step), name)
            for name, version, needed in self.columns(key.kind, length)
            if needed[key.step]
        )

    def complete(self, keys: Collection[Key], kind: Kind, length: int, /) -> tuple[int, ...]:
        """Return the steps of the checkpoints whose parts are all among these keys, in order.

        A fresh model has all variables as in x_0. Therefore variables that are still unchanged in
        x_i need not be among the keys, except for i = 0. A checkpoint without parts is always
        complete.
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
        """Yield, for each stored variable, its name, and its version and its need in each step."""
        over = self.over(length)
        for name in sorted(self.stored if kind is Kind.RESTART else self.taped):
            if kind is Kind.RESTART:
                yield name, over.versions(name), over.live(name, seed=name in self.seed)
            else:
                yield name, over.versions(name)[:-1], over.has(name, "record", "use")

    @cached_property
    def changed(self) -> Names:
        """Variables that some step overwrites, forward or adjoint; all others are as in x_0."""
        flows = [it for step in self.different for it in (step.forward, step.record, step.reverse)]
        return NOTHING.union(*(flow.out for flow in flows))

    @cached_property
    def live(self) -> Names:
        """Variables that are live in some x_i: all that are read from a state."""
        flows = [it for step in self.different for it in (step.forward, step.record, step.reverse)]
        return self.seed.union(*(flow.use for flow in flows))

    @property
    def stored(self) -> Names:
        """Variables that checkpoints must contain: live variables that some step overwrites."""
        return self.live & self.changed

    @property
    def taped(self) -> Names:
        """Variables that tapes must contain: those of `tape` that some step overwrites."""
        return self.tape & self.changed

    @property
    def restart(self) -> int:
        """The bytes of a checkpoint that contains `stored`."""
        return sum(self.nbytes[name] for name in self.stored)

    def together(self, *, whole: bool = False) -> "Variables":
        """Return variables in groups that are stored as one: read, written and discarded together.

        One version then describes a group, and one access to a level takes its latency once for the
        whole group. A group has variables that all steps treat in the same way, so that no byte is
        stored without need. With `whole`, all stored variables are one group: there are fewer
        accesses, and more bytes that are not needed.

        For example, steps that treat u and v in the same way allow one group "u+v":

        >>> both = Flow({"u", "v"}, {"u", "v"})
        >>> dict(Variables({"u": 8, "v": 4}, Step(both)).together().nbytes)
        {'u+v': 12}
        """
        groups: dict[tuple[object, ...], list[str]] = {}
        for name in self.nbytes:
            treated = (name,) if TOGETHER in name else self._treated(name, whole=whole)
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

    def _treated(self, name: str, *, whole: bool) -> tuple[object, ...]:
        """Return how all steps treat a variable, which is the criterion for groups."""
        columns = tuple(
            (name in step.restored, *(name in names for names in _sets(step)))
            for step in self.different
            if not whole
        )
        return name in self.stored, name in self.live, name in self.tape, columns


def _before(happens: Bools, ends: Bools) -> Bools:
    """Return, for each index, whether something happens from it on, and not after the next end."""
    first = following(happens)
    before: Bools = (first < len(happens)) & (first <= following(ends))
    return before


def _sizes(nbytes: object) -> dict[str, int]:
    if not isinstance(nbytes, Mapping):
        raise BadInput(f"Variables: nbytes = {nbytes!r}; it must map each variable to its bytes")
    as_names("Variables: nbytes", nbytes)
    return {name: check_size(f"Variables: nbytes[{name!r}]", size) for name, size in nbytes.items()}


def _all_steps(steps: object) -> tuple[Step, ...]:
    sequence = tuple(steps) if isinstance(steps, Iterable) else (steps,)
    for step in sequence:
        if not isinstance(step, Step):
            raise BadInput(
                f"Variables: steps has {step!r}; it must be a Step, or one Step for each step"
            )
    return sequence


def _sets(step: Step) -> Iterable[Names]:
    for flow in (step.forward, step.record, step.reverse):
        yield from (flow.use, flow.out, flow.kill)


def _any_of(parts: Mapping[str, Names], names: Names) -> Names:
    return frozenset(name for name in parts if parts[name] & names)


def _all_of(parts: Mapping[str, Names], names: Names) -> Names:
    return frozenset(name for name in parts if parts[name] <= names)


def _renamed(step: Step, parts: Mapping[str, Names]) -> Step:
    """Return the step for groups: a group is used, or may be overwritten, if any part of it is."""
    forward, record, reverse = (
        Flow(_any_of(parts, flow.use), _any_of(parts, flow.out), _all_of(parts, flow.kill))
        for flow in (step.forward, step.record, step.reverse)
    )
    return Step(forward, record, reverse, _all_of(parts, step.restored))


def _numbered(steps: Iterable[Step]) -> tuple[list[Step], Ints]:
    """Return the different steps, each once, and the number of each given step among them."""
    given = list(steps)
    numbers: dict[Step, int] = {}
    # Most are the same objects. Comparing identities is faster than comparing contents.
    of = {id(step): step for step in given}
    number = {known: numbers.setdefault(step, len(numbers)) for known, step in of.items()}
    return list(numbers), np.fromiter((number[id(step)] for step in given), np.int64, len(given))
