"""What the six actions mean: the only rules of legality in the project.

The machine has two registers, one cursor and K levels:

              holds                                   changed by
    state     x_i, or nothing                         Advance, Record, Read(RESTART)
    tape      what the adjoint needs of [t, e),       Record and Read(TAPE) replace it,
              or nothing                              Reverse spends it
    adjoint   position of the adjoint, n down to 0    Reverse, Read(ADJOINT)
    stored    on each level, a set of keys            Write, Discard

It starts with state = 0 (a fresh model), no tape and adjoint = n. `apply` is the definition, an
action at a time; `replay.py` says the same of whole columns and is tested against it.

Where a chain has `variables`, restart data is stored variable by variable, and so may tapes be: a
key names a variable in one version, and the registers hold a version of each (`versions.py`).
"""

from collections.abc import Collection, Sequence
from copy import copy
from typing import NoReturn, assert_never

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.flows import NOTHING, Names
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule.versions import WHOLE, Versions, Wrong

_NAMED = 6
"""How many stored keys an error lists."""


class Machine:
    """The machine of a schedule; `apply` moves it, or raises IllegalAction and leaves it as it was.

    Attributes
    ----------
    state : int or None
        i where the state register holds x_i; by variables, where all is that is live in x_i.
    tape : (int, int) or None
        The span of steps whose tape is held.
    adjoint : int
        Steps from here to n are reversed.
    turned : bool
        Whether a Reverse may start at n: the state reached n here, or the adjoint at n was read.
    reversed : bool
        Whether anything was reversed in this process.
    stored : list of set of Key
        What lies on each level.
    used : list of int
        Bytes that this takes of each level's capacity.
    count : int
        Actions applied so far.
    versions : Versions or None
        What state and tape hold of each variable, where the chain has variables.
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
                    f"at the start, level {number} ({platform.levels[number].name}) holds"
                    f" {self.used[number]} bytes; its capacity is {capacity}"
                )

    def apply(self, action: Action, /) -> None:
        """Apply one action; raises IllegalAction: which action, which rule, what is stored."""
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
        """What is read of x_n when the forward gets there: nothing, once the adjoint has begun."""
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
            held = (
                "no tape is held"
                if self.tape is None
                else f"the tape of {_span(self.tape)} is held"
            )
            self._refuse(action, f"needs the tape of [{begin}, {end}); {held}")
        if end == self.chain.length and not self.turned:
            self._refuse(
                action,
                f"starts the adjoint, but neither x_{end} was reached nor the adjoint read here",
            )
        if self.versions is not None:
            self._needs(action, self.versions.reverse(begin, end))
        self.adjoint = begin
        self.tape = (tape[0], begin) if tape and tape[0] < begin else None
        self.reversed = True

    def _write(self, action: Write, key: Key, level: int) -> None:
        self._check_level(action, level)
        match key.kind:
            case Kind.RESTART | Kind.TAPE if self.versions and self._by_variable(key):
                if lacks := self.versions.lacks(key, self.tape):
                    self._refuse(action, lacks)
            case Kind.RESTART if self.state != key.step:
                self._refuse(action, f"needs the state x_{key.step}; {self._held_state()}")
            case Kind.TAPE if self.tape != (key.step, key.step + 1):
                held = "none is held" if self.tape is None else f"{_span(self.tape)} is held"
                self._refuse(action, f"needs the tape of step {key.step} alone; {held}")
            case Kind.ADJOINT if self.adjoint != key.step:
                self._refuse(action, f"needs the adjoint at {key.step}; it is at {self.adjoint}")
        if key in self.stored[level]:
            self._refuse(action, f"{key} is there already; discard it first")
        capacity = self.platform.levels[level].capacity
        needed = self._stored_bytes(key, level)
        if capacity is not None and self.used[level] + needed > capacity:
            self._refuse(
                action,
                f"needs {needed} bytes where {capacity - self.used[level]} of {capacity} are free;"
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
            case Kind.ADJOINT:
                if self.reversed:
                    self._refuse(
                        action, "comes after a Reverse in this process; it is legal only before"
                    )
                self.adjoint = key.step
                self.turned = self.turned or key.step == self.chain.length

    def _by_variable(self, key: Key) -> bool:
        """Whether it is one variable that is stored; so is all restart data of such a chain."""
        return self.versions is not None and (key.kind is Kind.RESTART or key.name != "")

    def _check_version(self, key: Key, level: int) -> None:
        """What is stored at the start is as its step left it; a key in no other way names it."""
        if not key.name or self.versions is None or key.name not in self.versions.held:
            return
        if (version := self.versions.of(key.name, key.step)) != key.step:
            raise BadInput(
                f"the schedule starts with {key} on level {level}"
                f" ({self.platform.levels[level].name}); {key.name} in x_{key.step} is still as in"
                f" x_{version}: name it {Key(key.kind, version, key.name)}"
            )

    def _check_working_memory(self, action: Action, nbytes: int) -> None:
        room = self.platform.working_memory
        if room is not None and nbytes > room:
            self._refuse(
                action, f"needs {nbytes} bytes of working memory for the tape; there are {room}"
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
        return "no state is held" if self.state is None else f"the state is x_{self.state}"

    def _holds(self, level: int) -> str:
        keys = sorted(self.stored[level], key=lambda key: (key.kind.value, key.step, key.name))
        listed = ", ".join(str(key) for key in keys[:_NAMED]) + (
            ", ..." if len(keys) > _NAMED else ""
        )
        return f"level {level} ({self.platform.levels[level].name}) holds {listed or 'nothing'}"

    def _refuse(self, action: Action, rule: str) -> NoReturn:
        raise IllegalAction(f"#{self.count} {action}: {rule}")


def _span(span: tuple[int, int]) -> str:
    return f"[{span[0]}, {span[1]})"
