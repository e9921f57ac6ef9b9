"""Random models of named arrays whose steps are straight-line programs, and what these do.

Each element of an array knows which elements of x_i it was made of: from that follow the sets, by
their definition and without running anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from ckio.actions.variables import Flow, Step, Variables
from ckio.model.arraymodel import ArrayModel

SIZE = 6
NAMES = "abcde"

Element = tuple[str, int]


@dataclass(frozen=True)
class Statement:
    """What happens to the elements `where` of an array: from the same ones of others, or shifted.

    With `adds`, what it held goes on.
    """

    target: str
    sources: tuple[str, ...]
    where: slice
    shift: int
    adds: bool
    way: int

    def does(self, state) -> None:
        """By one of the ways in which people write it."""
        value = np.full(SIZE, 0.1)
        for source in self.sources:
            value += np.sin(np.roll(state[source], self.shift))
        view = state[self.target][self.where]
        match self.way:
            case 0 if self.adds:
                view += value[self.where]
            case 0:
                view[...] = value[self.where]
            case 1 if self.adds:
                np.add(view, value[self.where], out=view)
            case 1:
                np.multiply(value[self.where], 0.5, out=view)
            case _ if self.adds:
                state[self.target][self.where] *= value[self.where]
            case _:
                np.copyto(view, value[self.where])


@dataclass(frozen=True)
class Program:
    """Statements of every step; what the adjoint reads of its tape, and what of x_n."""

    statements: tuple[Statement, ...]
    taped: tuple[str, ...]
    reads: tuple[str, ...]
    seeds: tuple[str, ...]

    def flow(self) -> Flow:
        """What a step uses and overwrites."""
        made: dict[str, list[set[Element]]] = {
            name: [{(name, k)} for k in range(SIZE)] for name in (*NAMES, "J")
        }
        for it in self.statements:
            rolled = [
                set().union(*(made[source][(k - it.shift) % SIZE] for source in it.sources))
                for k in range(SIZE)
            ]
            for k in range(SIZE)[it.where]:
                made[it.target][k] = rolled[k] | (made[it.target][k] if it.adds else set())
        made["J"] = [set().union(*made[NAMES[0]], *made["J"])]
        of = {name: {source for source, _ in set().union(*made[name])} for name in made}
        use = {source for name in made for source in of[name] - {name}}
        out = {it.target for it in self.statements} | {"J"}
        return Flow(use, out, {name for name in out if name not in of[name]})

    def variables(self) -> Variables:
        """All that there is to declare."""
        forward = self.flow()
        nbytes = dict.fromkeys(NAMES, 8 * SIZE) | {"J": 8}
        record = Flow(self.reads, forward.out, forward.kill)
        return Variables(nbytes, Step(forward, record), seed=self.seeds, tape=self.reads)


class Straight(ArrayModel):
    """J sums up what the first array holds after each step. The adjoint is right by no means."""

    def __init__(self, program: Program, **kwargs: object) -> None:
        self.program = program
        random = np.random.default_rng(7)
        state = {name: random.uniform(0.2, 1.0, SIZE) for name in NAMES}
        super().__init__(
            state | {"J": 0.0},
            control={"a": state["a"], "rate": 1.0},
            tape=program.taped,
            **kwargs,
        )

    def step(self, state, i):
        for statement in self.program.statements:
            statement.does(state)
        state["J"] += self.control["rate"] * state[NAMES[0]].sum()

    def adjoint_step(self, adjoint, tape, i):
        for name in self.program.reads:
            self.gradient["rate"] += tape[name].sum() * adjoint["J"]
            adjoint["a"] += 0.5 * tape[name] * adjoint["J"]

    def adjoint_seed(self, state, adjoint, n):
        seeds = [name for name in self.program.seeds if name != "J"]
        for name in seeds:
            adjoint[name] += state[name]
        return sum(float(state[name].sum()) for name in seeds)


def random_program(random: Random) -> Program:
    whole, parts = slice(None), (slice(1, -1), slice(0, None, 2), slice(2, None), slice(0, 1))
    statements = []
    for _ in range(random.randint(1, 5)):
        adds = random.random() < 0.3
        statements.append(
            Statement(
                target=random.choice(NAMES),
                sources=tuple(random.sample(NAMES, random.randint(not adds, 2))),
                where=whole if random.random() < 0.6 else random.choice(parts),
                shift=random.choice((0, 0, 1)),
                adds=adds,
                way=random.randrange(3),
            )
        )
    taped = tuple(name for name in NAMES if random.random() < 0.6)
    reads = tuple(name for name in taped if random.random() < 0.7)
    seeds = ("J", *(name for name in NAMES if random.random() < 0.3))
    return Program(tuple(statements), taped, reads, seeds)


def maker(program: Program, **kwargs: object) -> Callable[[], Straight]:
    return lambda: Straight(program, **kwargs)
