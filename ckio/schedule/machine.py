"""The meaning of the six actions: the only definition of the rules of a schedule.

The machine has three registers and K levels:

              contents                                changed by
    state     x_i, or empty                           Advance, Record, Read(RESTART); Read(TAPE)
                                                      if the tape restarts (`Chain`)
    tape      the data that the adjoint needs for     Record and Read(TAPE) replace it,
              the steps [t, e), or empty              Reverse consumes it
    adjoint   the step of the adjoint, n down to 0    Reverse, Read(ADJOINT)
    stored    a set of keys on each level             Write, Discard

The machine starts with state = 0 (a fresh model), no tape, and adjoint = n. `Machine.apply` defines
one action at a time. `replay.py` checks the same rules on whole columns if checkpoints are stored
whole, and tests compare the two.

If a chain has `variables`, restart data is stored variable by variable, and tapes may be. Then a
key names one variable in one version, and the registers contain a version of each variable
(`Versions`).

For example, two steps are recorded and reversed, after which the adjoint is at 0:

>>> chain = Chain(steps=2, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
>>> machine = Machine(chain, Platform(()))
>>> for action in (Record(0, 2), Reverse(0, 2)):
...     machine.apply(action)
>>> machine.state, machine.tape, machine.adjoint
(2, None, 0)
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final, NoReturn, assert_never

import numpy as np

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import NOTHING, Bools, Flow, Ints, Names, Step, Variables
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Platform
from ckio.platform.chain import Chain

_FORWARD: Final[Callable[[Step], Flow]] = attrgetter("forward")
_RECORD: Final[Callable[[Step], Flow]] = attrgetter("record")

WHOLE: Final = "this chain's restart data is stored variable by variable"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A variable in a wrong version; `has` is None if its value is not one of the forward sweep."""

    name: str
    needs: int
    has: int | None

    def __str__(self) -> str:
        has = (
            "its value is not one of the forward sweep"
            if self.has is None
            else f"it is as in x_{self.has}"
        )
        return f"needs {self.name} as in x_{self.needs}; {has}"


class Versions:
    """The version of each variable in the state, from x_0 on.

    Variable v has version j in x_i if step j - 1 is the last step before x_i that overwrites v. It
    has version 0 if no step overwrites it.

    Attributes
    ----------
    held : dict
        The version of each variable, or None if its value is not one of the forward sweep.
    taped : dict
        The versions of the variables of a tape that were read one by one.
    stands : int or None
        The step that the forward sweep reached, if nothing has changed since.
    """

    def __init__(self, variables: Variables, length: int) -> None:
        self._variables, self._steps = variables, variables.over(length)
        self._versions = {name: self._steps.versions(name) for name in variables.nbytes}
        self.held: dict[str, int | None] = dict.fromkeys(variables.nbytes, 0)
        self.taped: dict[str, int] = {}
        self.stands: int | None = 0

    def __copy__(self) -> "Versions":
        """Return registers with the same contents that change independently."""
        copied = object.__new__(Versions)
        vars(copied).update(vars(self), held=dict(self.held), taped=dict(self.taped))
        return copied

    def of(self, name: str, step: int, /) -> int:
        """Return the version of a variable in x_step."""
        return self._versions[name].item(step)

    def at(self) -> int | None:
        """Return i if the state is x_i, and None if it is not any x_i.

        Several i are possible, because variables may be equal in several states, or may not be
        needed. The result is the step that the forward sweep reached, if the state is complete
        there. Otherwise it is the step with most variables in the right version, the first of them
        if there are several.
        """
        if self.stands is not None and self.complete(self.stands):
            return self.stands
        names, version, live = self._columns
        versions = [-1 if (has := self.held[name]) is None else has for name in names]
        right = version == np.array(versions, np.int64).reshape(-1, 1)
        most = np.where((right | ~live).all(axis=0), right.sum(axis=0), -1)
        step = int(most.argmax())
        return step if most[step] >= 0 else None

    def complete(self, step: int, /) -> bool:
        """Return whether the state is x_step."""
        names, version, live = self._columns
        rows = zip(names, version[:, step].tolist(), live[:, step].tolist(), strict=True)
        return all(not needed or self.held[name] == needs for name, needs, needed in rows)

    def advance(self, begin: int, end: int, /, seed: Names = NOTHING) -> Wrong | None:
        """Run the steps [begin, end) forward.

        If a variable is wrong, return it and change nothing. The variables in `seed` are read from
        the state x_end.
        """

        def after(step: Step, right: Names) -> Names:
            return right | step.forward.kill

        return self._forward(begin, end, _FORWARD, after, seed)

    def record(self, begin: int, end: int, /, seed: Names = NOTHING) -> Wrong | None:
        """Run the steps [begin, end) forward and record their tape; see `advance`.

        A step may have all data for its tape, but not all data that the forward step uses. Then the
        state after this step is not any x_i.
        """

        def after(step: Step, right: Names) -> Names:
            unchanged = right - step.record.out
            if not step.forward.use <= right:
                return unchanged
            return unchanged | (step.forward.out & (right | step.record.kill))

        wrong = self._forward(begin, end, _RECORD, after, seed)
        if wrong is None:
            self.taped = {}
        return wrong

    def reverse(self, begin: int, end: int, /) -> Wrong | None:
        """Run the adjoint of the steps [begin, end), the last step first; see `advance`."""
        versions = dict(self.held)
        for first, last in reversed(list(self._steps.runs(begin, end))):
            does = self._steps[first]
            # All steps of this span are equal. After the first two of them, nothing can be wrong.
            for step in reversed(range(max(first, last - 2), last)):
                if wrong := self._wrong(versions, does.reverse.use, step + 1):
                    return wrong
                versions.update(dict.fromkeys(does.reverse.out))
                versions.update(self._as_in(does.restored, step))
            versions.update(self._as_in(does.restored, first))
        if versions != self.held:
            self.held, self.stands = versions, None
        return None

    def read(self, key: Key, /) -> None:
        """Set a variable of the state, or of a tape, to its value in x_i."""
        if key.kind is Kind.TAPE:
            self.taped[key.name] = key.step
        elif self.held[key.name] != key.step:
            self.held[key.name], self.stands = key.step, None

    def tapes(self, step: int, /) -> bool:
        """Return whether all variables of the tape of a step were read, in the right versions."""
        if not self._variables.taped:
            return False
        needed = self._variables.taped & self._steps[step].record.use
        return all(self.taped.get(name) == self.of(name, step) for name in needed)

    def lacks(self, key: Key, tape: tuple[int, int] | None, /) -> str | None:
        """Return why a variable cannot be written now, or None; `tape` is the span of the tape."""
        name, at = key.name, key.step
        if name not in self.held:
            known = ", ".join(self.held) or "none"
            return f"{name} is not a variable of this chain, which has {known}" if name else WHOLE
        if at <= self._steps.length and (version := self.of(name, at)) != at:
            named = Key(key.kind, version, name)
            return f"{name} in x_{at} is still as in x_{version}: name it {named}"
        if key.kind is Kind.RESTART:
            has = self.held[name]
        elif tape is None or tape[1] - tape[0] > 1:
            has = self.taped.get(name)
        elif name in self._variables.tape & self._steps[tape[0]].record.use:
            has = self.of(name, tape[0])
        else:
            return f"the tape of step {tape[0]} does not contain {name}"
        return None if has == at else str(Wrong(name, at, has))

    def _forward(
        self,
        begin: int,
        end: int,
        flow: Callable[[Step], Flow],
        after: Callable[[Step, Names], Names],
        seed: Names,
    ) -> Wrong | None:
        """Run one flow of each step forward; `after` returns the right variables after a step."""
        right = frozenset(name for name, has in self.held.items() if has == self.of(name, begin))
        out = NOTHING

        def wrong(names: Names, step: int) -> Wrong:
            name = min(names - right)
            return Wrong(name, self.of(name, step), None if name in out else self.held[name])

        for first, last in self._steps.runs(begin, end):
            does = self._steps[first]
            use = flow(does).use
            for step in range(first, last):
                if not use <= right:
                    return wrong(use, step)
                before, right = right, after(does, right)
                out |= flow(does).out
                if right == before:  # the other steps of this span are equal, and change nothing
                    break
        if not seed <= right:
            return wrong(seed, end)
        self.held.update(dict.fromkeys(out))
        self.held.update(self._as_in(out & right, end))
        self.stands = end
        return None

    def _wrong(
        self, held: Mapping[str, int | None], names: Iterable[str], step: int
    ) -> Wrong | None:
        wrong = [name for name in names if held[name] != self.of(name, step)]
        if not wrong:
            return None
        name = min(wrong)
        return Wrong(name, self.of(name, step), held[name])

    def _as_in(self, names: Names, step: int) -> Iterator[tuple[str, int]]:
        return ((name, self.of(name, step)) for name in names)

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], Ints, Bools]:
        """Return the stored variables: their names, and version and liveness in each x_i."""
        names = tuple(sorted(self._variables.stored))
        size = len(names), self._steps.length + 1
        live = [self._steps.live(name, seed=name in self._variables.seed) for name in names]
        return (
            names,
            np.array([self._versions[name] for name in names], np.int64).reshape(size),
            np.array(live, np.bool_).reshape(size),
        )


_NAMED = 6
"""The number of stored keys that an error lists."""


class Machine:
    """The state of a schedule. `apply` performs one action, or raises IllegalAction.

    If `apply` raises an error, the machine does not change.

    Attributes
    ----------
    state : int or None
        i if the state register contains x_i. If the chain has variables: i if all variables that
        are live in x_i are as in x_i.
    tape : (int, int) or None
        The span of steps whose tape is in the tape register.
    adjoint : int
        All steps from this one to n are reversed.
    turned : bool
        Whether there is an adjoint at n: the state has reached n here, or the adjoint at n was
        read. Before that, no Reverse may start at n, and the adjoint at n cannot be written.
    reversed : bool
        Whether any step was reversed in this process.
    stored : list of set of Key
        The keys that are stored on each level.
    used : list of int
        The bytes of each level's capacity that these keys use.
    count : int
        The actions applied so far.
    versions : Versions or None
        The version of each variable in the state and in the tape, if the chain has variables.
    """

    def __init__(
        self, chain: Chain, platform: Platform, stored: Sequence[Collection[Key]] = (), /
    ) -> None:
        if len(stored) > len(platform.levels):
            raise BadInput(
                f"the schedule starts with keys on {len(stored)} levels;"
                f" the platform has {len(platform.levels)}"
            )
        self.chain = chain
        self.platform = platform
        self._state: int | None = 0
        self.tape: tuple[int, int] | None = None
        self.adjoint = chain.length
        self.turned = False
        self.reversed = False
        self.stored: list[set[Key]] = [set() for _ in platform.levels]
        self.used = [0] * len(platform.levels)
        self.count = 0
        variables = chain.variables
        self.versions = None if variables is None else Versions(variables, chain.length)
        for number, keys in enumerate(stored):
            for key in keys:
                if key.step > chain.length - (key.kind is Kind.TAPE):
                    raise BadInput(
                        f"the schedule starts with {key} on level {number}"
                        f" ({platform.levels[number].name}); its chain has {chain.length} steps"
                    )
                self._check_version(key, number)
                self._put(key, number)
            capacity = platform.levels[number].capacity
            if capacity is not None and self.used[number] > capacity:
                raise IllegalAction(
                    f"at the start, level {number} ({platform.levels[number].name}) stores"
                    f" {self.used[number]} bytes; its capacity is {capacity}"
                )

    def apply(self, action: Action, /) -> None:
        """Apply one action, or raise IllegalAction with the action, the rule and the keys."""
        match action:
            case Advance(begin, end):
                self._check_forward(action, begin, end)
                self._forward(action, begin, end)
            case Record(begin, end):
                self._check_forward(action, begin, end)
                self._check_working_memory(action, self.chain.tape_bytes(begin, end))
                self._forward(action, begin, end)
                self.tape = begin, end
            case Reverse(begin, end):
                self._reverse(action, begin, end)
            case Write(key, level):
                self._write(action, key, level)
            case Read(key, level):
                self._read(action, key, level)
            case Discard(key, level):
                self._check_stored(action, key, level)
                self.stored[level].discard(key)
                self.used[level] -= self._stored_bytes(key, level)
            case _:
                assert_never(action)
        self.count += 1

    @property
    def state(self) -> int | None:
        return self._state if self.versions is None else self.versions.at()

    @state.setter
    def state(self, step: int | None) -> None:
        self._state = step

    def __copy__(self) -> "Machine":
        copied = object.__new__(type(self))
        vars(copied).update(vars(self), versions=copy(self.versions))
        return copied

    def _check_forward(self, action: Advance | Record, begin: int, end: int) -> None:
        if self.versions is None and self.state != begin:
            self._refuse(action, f"needs the state x_{begin}; {self._held_state()}")
        if end > self.chain.length:
            self._refuse(action, f"goes past the end: the chain has {self.chain.steps} steps")

    def _forward(self, action: Advance | Record, begin: int, end: int) -> None:
        at_the_end = end == self.chain.length
        if self.versions is not None:
            move = self.versions.record if isinstance(action, Record) else self.versions.advance
            self._needs(action, move(begin, end, self._seed() if at_the_end else NOTHING))
        self.state = end
        self.turned = self.turned or at_the_end

    def _seed(self) -> Names:
        """Variables of x_n that are read when the forward ends; none once the adjoint began."""
        begun = self.turned or self.adjoint < self.chain.length
        return NOTHING if begun or not (variables := self.chain.variables) else variables.seed

    def _needs(self, action: Action, wrong: Wrong | None) -> None:
        if wrong is not None:
            self._refuse(action, str(wrong))

    def _reverse(self, action: Reverse, begin: int, end: int) -> None:
        if self.adjoint != end:
            self._refuse(action, f"needs the adjoint at {end}; it is at {self.adjoint}")
        tape = self.tape if self.tape and self.tape[0] <= begin and self.tape[1] == end else None
        by_variable = self.versions and end - begin == 1 and self.versions.tapes(begin)
        if tape is None and not by_variable:
            contents = (
                "there is no tape"
                if self.tape is None
                else f"the tape is that of {_span(self.tape)}"
            )
            self._refuse(action, f"needs the tape of [{begin}, {end}); {contents}")
        self._check_turned(action, end)
        if self.versions is not None:
            self._needs(action, self.versions.reverse(begin, end))
        self.adjoint = begin
        self.tape = (tape[0], begin) if tape and tape[0] < begin else None
        self.reversed = True

    def _check_turned(self, action: Reverse | Write, step: int) -> None:
        if step == self.chain.length and not self.turned:
            self._refuse(
                action,
                f"there is no adjoint yet: neither x_{step} was reached, nor was an adjoint read",
            )

    def _write(self, action: Write, key: Key, level: int) -> None:
        self._check_level(action, level)
        match key.kind:
            case Kind.RESTART | Kind.TAPE if self.versions and self._by_variable(key):
                if lacks := self.versions.lacks(key, self.tape):
                    self._refuse(action, lacks)
            case Kind.RESTART if self.state != key.step:
                self._refuse(action, f"needs the state x_{key.step}; {self._held_state()}")
            case Kind.TAPE if self.tape != (key.step, key.step + 1):
                contents = "there is none" if self.tape is None else f"it is of {_span(self.tape)}"
                self._refuse(action, f"needs the tape of step {key.step} alone; {contents}")
            case Kind.ADJOINT if self.adjoint != key.step:
                self._refuse(action, f"needs the adjoint at {key.step}; it is at {self.adjoint}")
        if key.kind is Kind.ADJOINT:
            self._check_turned(action, key.step)
        if key in self.stored[level]:
            self._refuse(action, f"{key} is already stored there; discard it first")
        if self.platform.levels[level].read_only:
            self._refuse(action, "nothing can be stored there: the level is read-only")
        capacity = self.platform.levels[level].capacity
        needed = self._stored_bytes(key, level)
        if capacity is not None and self.used[level] + needed > capacity:
            self._refuse(
                action,
                f"needs {needed} bytes, but {capacity - self.used[level]} of {capacity} are free;"
                f" {self._holds(level)}",
            )
        self._put(key, level)

    def _read(self, action: Read, key: Key, level: int) -> None:
        self._check_stored(action, key, level)
        match key.kind:
            case Kind.RESTART if self.versions and not key.name:
                self._refuse(action, WHOLE)
            case Kind.RESTART if self.versions:
                self.versions.read(key)
            case Kind.RESTART:
                self.state = key.step
            case Kind.TAPE if self.versions and key.name:
                self._check_working_memory(action, self.chain.largest("tape"))
                self.versions.read(key)
                self.tape = None
            case Kind.TAPE:
                self._check_working_memory(action, self.chain.nbytes(key))
                self.tape = key.step, key.step + 1
                if self.versions:
                    self.versions.taped = {}
                if self.chain.tape_restarts:
                    self.state = key.step + 1
            case Kind.ADJOINT:
                if self.reversed:
                    self._refuse(
                        action, "comes after a Reverse in this process; it is legal only before"
                    )
                self.adjoint = key.step
                self.turned = self.turned or key.step == self.chain.length

    def _by_variable(self, key: Key) -> bool:
        """Return whether a key must be of one variable, or is one."""
        return self.versions is not None and (key.kind is Kind.RESTART or key.name != "")

    def _check_version(self, key: Key, level: int) -> None:
        """Check that a key that is stored at the start names a version that its step produces."""
        if not key.name or self.versions is None or key.name not in self.versions.held:
            return
        if (version := self.versions.of(key.name, key.step)) != key.step:
            raise BadInput(
                f"the schedule starts with {key} on level {level}"
                f" ({self.platform.levels[level].name}); {key.name} in x_{key.step} is still as in"
                f" x_{version}: name it {Key(key.kind, version, key.name)}"
            )

    def _check_working_memory(self, action: Action, nbytes: int) -> None:
        capacity = self.platform.working_memory
        if capacity is not None and nbytes > capacity:
            self._refuse(
                action,
                f"needs {nbytes} bytes of working memory for the tape; the platform has {capacity}",
            )

    def _check_level(self, action: Write | Read | Discard, level: int) -> None:
        if level >= len(self.platform.levels):
            self._refuse(
                action, f"there is no such level; the platform has {len(self.platform.levels)}"
            )

    def _check_stored(self, action: Read | Discard, key: Key, level: int) -> None:
        self._check_level(action, level)
        if key not in self.stored[level]:
            self._refuse(action, f"it is not stored there; {self._holds(level)}")

    def _put(self, key: Key, level: int) -> None:
        self.stored[level].add(key)
        self.used[level] += self._stored_bytes(key, level)

    def _stored_bytes(self, key: Key, level: int) -> int:
        return self.platform.levels[level].stored(self.chain.nbytes(key))

    def _held_state(self) -> str:
        return "there is no state" if self.state is None else f"the state is x_{self.state}"

    def _holds(self, level: int) -> str:
        keys = sorted(self.stored[level], key=lambda key: (key.kind.value, key.step, key.name))
        listed = ", ".join(str(key) for key in keys[:_NAMED]) + (
            ", ..." if len(keys) > _NAMED else ""
        )
        return f"level {level} ({self.platform.levels[level].name}) stores {listed or 'nothing'}"

    def _refuse(self, action: Action, rule: str) -> NoReturn:
        raise IllegalAction(f"#{self.count} {action}: {rule}")


def _span(span: tuple[int, int]) -> str:
    return f"[{span[0]}, {span[1]})"
