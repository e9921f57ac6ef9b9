"""The state and tape registers of the machine where checkpoints are single variables.

The state holds each variable in some version, or no value of the forward. It is x_i once every
variable that is live in some x_i has the version that it has in x_i. A step needs no more than the
variables that it uses: so what is dead, or not read until it is overwritten, need not be loaded.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ckio.flows import Flow
from ckio.variables import Variables


@dataclass(frozen=True, slots=True)
class Wrong:
    """A variable that is not as it has to be; `has` is None where it is no value of the forward."""

    name: str
    needs: int
    has: int | None

    def __str__(self) -> str:
        has = (
            "it holds no value of the forward" if self.has is None else f"it is as in x_{self.has}"
        )
        return f"needs {self.name} as in x_{self.needs}; {has}"


class Versions:
    """What the state holds of each variable, from x_0 on.

    Attributes
    ----------
    held : dict
        The version of each variable, or None.
    taped : dict
        The versions of the variables of a tape that were read one by one.
    """

    def __init__(self, variables: Variables, length: int) -> None:
        self._variables, self._steps = variables, variables.over(length)
        self._versions = {name: self._steps.versions(name) for name in variables.nbytes}
        self.held: dict[str, int | None] = dict.fromkeys(variables.nbytes, 0)
        self.taped: dict[str, int] = {}

    def of(self, name: str, step: int, /) -> int:
        """The version that a variable has in x_step."""
        return int(self._versions[name][step])

    def wrong(self, names: Iterable[str], step: int, /) -> Wrong | None:
        """The first of these variables that is not as in x_step, if one is not."""
        for name in sorted(names):
            if self.held[name] != (needs := self.of(name, step)):
                return Wrong(name, needs, self.held[name])
        return None

    def at(self) -> int | None:
        """I where the state is x_i, by what is live; None where it is none."""
        versions = [self.held[name] for name in self._variables.stored]
        step = max((version for version in versions if version is not None), default=0)
        return step if self.complete(step) else None

    def complete(self, step: int, /) -> bool:
        """Whether the state is x_step."""
        return self.wrong(self._variables.stored, step) is None

    def seeds(self) -> bool:
        """Whether all that the functional reads is there, as in x_n."""
        return self.wrong(self._variables.seed, self._steps.length) is None

    def advance(self, begin: int, end: int, /) -> Wrong | None:
        """The steps [begin, end) forward; or, and nothing has changed, what keeps them from it."""
        flow = self._span(begin, end)
        if wrong := self.wrong(flow.use, begin):
            return wrong
        for name in flow.out:
            right = name in flow.kill or self.held[name] == self.of(name, begin)
            self.held[name] = self.of(name, end) if right else None
        return None

    def record(self, begin: int, end: int, /) -> Wrong | None:
        """The same with their tape.

        Where a step has all that its tape needs, but not all that the forward uses, the state that
        it leaves is no x_i.
        """
        before = dict(self.held)
        for step in range(begin, end):
            does = self._steps[step]
            if wrong := self.wrong(does.record.use, step):
                self.held = before
                return wrong
            whole = self.wrong(does.forward.use, step) is None
            for name in does.record.out:
                right = name in does.record.kill or self.held[name] == self.of(name, step)
                right = right and whole and name in does.forward.out
                self.held[name] = self.of(name, step + 1) if right else None
        self.taped = {}
        return None

    def reverse(self, begin: int, end: int, /) -> Wrong | None:
        """The adjoint of the steps [begin, end), the last first."""
        before = dict(self.held)
        for step in reversed(range(begin, end)):
            does = self._steps[step]
            if wrong := self.wrong(does.reverse.use, step + 1):
                self.held = before
                return wrong
            for name in does.reverse.out - does.restored:
                self.held[name] = None
            for name in does.restored:
                self.held[name] = self.of(name, step)
        return None

    def tapes(self, step: int, /) -> bool:
        """Whether all that the tape of a step is made of was read, in the versions of that step."""
        tape = self._variables.tape
        return bool(tape) and all(self.taped.get(n) == self.of(n, step) for n in tape)

    def _span(self, begin: int, end: int) -> Flow:
        """The flow of the forward steps [begin, end)."""
        if len(self._steps.different) == 1:
            return self._steps[begin].forward
        flow = self._steps[begin].forward
        for step in range(begin + 1, end):
            flow = flow.then(self._steps[step].forward)
        return flow
