"""What the registers hold of each array, as the Machine sees it, an action at a time."""

from collections.abc import Iterable
from typing import Final

from ckio.actions import Key, Kind
from ckio.actions.variables import NOTHING, Names, Step, Variables
from ckio.errors import RunFailed
from ckio.schedule.machine import Versions

_AHEAD: Final = 64
"""Steps, at least, for which versions are known where all steps are alike."""


class Held:
    """What state and tape hold of each array, as the Machine sees it."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._uniform = isinstance(variables.steps, Step)
        self._ahead = _AHEAD if isinstance(variables.steps, Step) else len(variables.steps)
        self._versions = Versions(variables, self._ahead)
        self._dumped: dict[Key, Names] = {}
        self.tapes: dict[int, Names] = {}
        """Of the steps whose tapes are held as a whole, what is right in them."""

    def does(self, step: int, /) -> Step:
        """What a step is declared to do."""
        self._reach(step + 1)
        return self._variables.over(self._ahead)[step]

    def of(self, name: str, step: int, /) -> int:
        """The version of an array in x_step."""
        self._reach(step)
        return self._versions.of(name, step)

    def has(self, name: str, step: int, /) -> bool:
        """Whether the state holds an array as in x_step."""
        return self._versions.held[name] == self.of(name, step)

    def right(self, step: int, /) -> Names:
        """All that the state holds as in x_step."""
        return frozenset(name for name in self._variables.nbytes if self.has(name, step))

    def needs(self, names: Names, step: int, /) -> None:
        """Raises RunFailed where one of these arrays is not as in x_step."""
        self._reach(step)
        if wrong := self._versions.wrong(names, step):
            raise RunFailed(f"step {step} {wrong}")

    def is_value(self, name: str, /) -> bool:
        """Whether what the state holds of an array is a value of the forward, of any step."""
        return self._versions.held[name] is not None

    def move(self, step: int, *, recorded: bool) -> None:
        """Account for a step forward; raises RunFailed for what it needs and is not there."""
        self._reach(step + 1)
        move = self._versions.record if recorded else self._versions.advance
        if wrong := move(step, step + 1):
            raise RunFailed(f"step {step} {wrong}")

    def after(self, step: int, lost: Names, *, recorded: bool) -> Names:
        """What is right after a step before which some arrays hold nothing of any worth."""
        held, taped = dict(self._versions.held), dict(self._versions.taped)
        self._versions.held.update(dict.fromkeys(lost))
        try:
            self.move(step, recorded=recorded)
            return self.right(step + 1)
        finally:
            self._versions.held.update(held)
            self._versions.taped = taped

    def reverse(self, begin: int, end: int) -> None:
        """Account for steps back; raises RunFailed as `move` does."""
        self._reach(end)
        if wrong := self._versions.reverse(begin, end):
            raise RunFailed(f"the adjoint of steps [{begin}, {end}) {wrong}")

    def dump(self, key: Key, names: Iterable[str]) -> None:
        """Remember what of a checkpoint is right."""
        self._dumped[key] = frozenset(name for name in names if self._dumps(key, name))

    def brings(self, key: Key, names: Iterable[str]) -> Names:
        """What is right of a checkpoint that is loaded; of one by another process, all."""
        return self._dumped.get(key, frozenset(names)) & self._variables.nbytes.keys()

    def surely(self, key: Key, names: Iterable[str]) -> Names:
        """The same, but of one by another process only what the next step uses."""
        right = self.brings(key, names)
        if key in self._dumped or key.name:
            return right
        return right & self.uses(key.step)

    def uses(self, step: int) -> Names:
        """What a step uses; nothing where there is none."""
        if not self._uniform and step >= self._ahead:
            return NOTHING
        does = self.does(step)
        return does.forward.use | does.record.use

    def load(self, key: Key, names: tuple[str, ...]) -> None:
        """Account for a checkpoint that was loaded."""
        self._reach(key.step)
        right = self.brings(key, names)
        for name in self._variables.nbytes.keys() & names:
            version = self.of(name, key.step) if name in right else None
            if key.kind is Kind.RESTART:
                self._versions.held[name] = version
            elif key.name and version is not None:
                self._versions.taped[name] = version
        if key.kind is Kind.TAPE:
            self.tapes = {} if key.name else {key.step: right}

    def taped(self, name: str, step: int) -> bool:
        """Whether the tape of a step has an array as it is in x_step."""
        if name not in self._variables.changed:
            return self.has(name, step)
        if step in self.tapes:
            return name in self.tapes[step]
        return self._versions.taped.get(name) == self.of(name, step)

    def _dumps(self, key: Key, name: str) -> bool:
        if name not in self._variables.nbytes:
            return False
        if key.kind is Kind.RESTART:
            return self.has(name, key.step)
        step = next(iter(self.tapes)) if key.name and len(self.tapes) == 1 else key.step
        return self.taped(name, step) and self.of(name, step) == self.of(name, key.step)

    def _reach(self, step: int) -> None:
        if step <= self._ahead:
            return
        if not self._uniform:
            raise RunFailed(f"step {step - 1} is not among the {self._ahead} that are declared")
        before = self._versions
        self._ahead = 2 * step
        self._versions = Versions(self._variables, self._ahead)
        self._versions.held.update(before.held)
        self._versions.taped.update(before.taped)
