"""A state that finds out what the steps of any function do to it."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ckio.actions.variables import Flow
from ckio.analysis.recorded.poison import Results, Watched, digest, flow_of
from ckio.errors import BadInput
from ckio.model.arrays import Arrays


class Recorder(Watched):
    """A state that finds out what steps do to it, for any function `step(state, ...)`.

        recorder = Recorder({"u": u, "F_1": F_1})
        with recorder.step():
            step(recorder, 0)

    says what is seen from outside: an array that was asked for is used, one that was assigned
    anew is overwritten in whole, and one whose bytes differ perhaps in part. It may stand in for a
    step that can be done once only. One that can be done again, `recorder.probe(step, 1)` does, and
    finds out more exactly (`flow_of`).

    Parameters
    ----------
    state : mapping of str to array
        Not copied: steps change these arrays. Numbers are arrays of one.
    assign : bool
        Whether a step may put another array in the place of one, as `state["u"] = u + v`.
    """

    def __init__(self, state: Mapping[str, Any], *, assign: bool = True) -> None:
        super().__init__({name: np.asarray(x) for name, x in state.items()}, self._ask)
        self._assign = assign
        self._used: set[str] = set()
        self._assigned: set[str] = set()
        self._flow: Flow | None = None

    @property
    def flow(self) -> Flow:
        """What the steps so far may use and overwrite, and what each of them surely does."""
        return self._flow or Flow()

    @contextmanager
    def step(self) -> Generator[None]:
        """While it is open, one step is done to this state."""
        before = self._begin()
        yield
        self._add(self._seen(before))

    def probe(self, step: Callable[..., object], /, *args: object) -> None:
        """Do one step, step(state, *args), to this state; before, on copies, as `flow_of` does."""

        def does(arrays: Arrays) -> Results:
            trial = Recorder(dict(dict.items(arrays)), assign=self._assign)
            step(trial, *args)
            for name in trial._used & arrays.keys():
                arrays[name]  # which tells those who watch
            return {name: dict.__getitem__(trial, name) for name in trial}

        now = {name: dict.__getitem__(self, name) for name in self}
        exact = flow_of(does, now)
        self._begin()
        step(self, *args)
        self._add(exact)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self and value is dict.__getitem__(self, name):
            return
        if not self._assign or name not in self:
            raise BadInput(
                f"the step puts another array in the place of {name!r}; "
                + (
                    "it has to change it in place"
                    if name in self
                    else f"the state has only {', '.join(self)}"
                )
            )
        self._assigned.add(name)
        dict.__setitem__(self, name, np.asarray(value))

    def update(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def _ask(self, name: str) -> None:
        if name not in self._assigned:
            self._used.add(name)

    def _begin(self) -> dict[str, bytes]:
        self._used.clear()
        self._assigned.clear()
        return {name: digest(dict.__getitem__(self, name)) for name in self}

    def _seen(self, before: Mapping[str, bytes]) -> Flow:
        changed = {name for name in self if digest(dict.__getitem__(self, name)) != before[name]}
        return Flow(self._used, self._assigned | changed, self._assigned)

    def _add(self, flow: Flow) -> None:
        self._flow = either(self._flow, flow)


def either(one: Flow | None, other: Flow) -> Flow:
    """Of code that does the one thing or the other."""
    if one is None:
        return other
    return Flow(one.use | other.use, one.out | other.out, one.kill & other.kill)
