"""Random programs: sources of a module, within what can be resumed, that always come to an end.

What is in a line is drawn from a grammar, and lines are put together here: loops nest, break and
go on; functions call those above them, and themselves with a depth that decreases. Numbers stay of
the order of 1, so that derivatives can be checked by differences. All arrays have 3 entries.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MOST_TICKS = 300
"""What the calls at one place may take, so that a program ends in a moment."""

HEADER = '''\
"""A random program."""

import numpy as np

from ckio.programs import program


def bent(x, y):
    """No program: all of it is one tick."""
    return np.tanh(x - 0.5 * y) + 0.25 * x * y'''

GRAMMAR = {
    "s": ("s", "t", "r"),
    "u": ("u", "v", "w"),
    "i": ("i", "j"),
    "at": ("0", "1", "-1", "i % 3", "(i + j) % 3"),
    "const": ("0.3", "0.7", "-0.2", "1.1", "0.05"),
    "atom": ("<s>", "<s>", "<u>[<at>]", "<const>"),
    "plain": (
        "<atom>",
        "<atom> + <atom>",
        "<atom> - 0.5 * <atom>",
        "<atom> * <s>",
        "<atom> / (1.5 + <s> ** 2)",
        "np.sqrt(1.0 + <s> ** 2)",
        "abs(<atom>)",
        "-(<atom>)",
    ),
    "bound": (
        "np.sin(<plain>)",
        "np.tanh(<plain>)",
        "np.cos(<plain> + 0.3)",
        "np.exp(-(<plain>) ** 2)",
        "max(-1.0, min(1.0, <plain>))",
    ),
    "bounds": (
        "np.sin(<u> + <s> * <u>)",
        "np.tanh(<u> * <u>)",
        "np.cos(<s> - <u>)",
        "np.roll(np.sin(<u>), 1)",
        "np.where(<u> > <u>, np.sin(<u>), np.cos(<u>))",
        "np.array([0.5, -0.25, 1.0]) * np.sin(<s>)",
        "np.exp(np.sin(-<u> * <u>))",
    ),
    "test": (
        "<s> < <const>",
        "<s> > <s>",
        "not <u>[<at>] <= <const>",
        "i % 2 == 0",
        "depth > 0 and i < j",
        "np.sum(<u>) > <const>",
    ),
    "assignment": (
        "<s> = <bound>",
        "<u> = <bounds>",
        "<s> = <bound> if <test> else <s>",
        "<s>, <s> = <bound>, <bound>",
        "<u> = <u>",
        "<u> = <u>[::-1]",
        "<u> = np.zeros(3)",
        "<u>, <s> = <bounds>, <u>[<at>]",
        "<s> = np.tanh(np.mean(<u> * <u>))",
        "<s> = np.tanh(<u> @ <u>)",
        "<s> = bent(<bound>, <bound>)",
        "pair = (<s>, <u>); <s> = np.sin(pair[0] + pair[1][1])",
    ),
    "update": (
        "<s> += 0.25 * <bound>",
        "<s> *= <bound>",
        "<u> += 0.25 * <bounds>",
        "<u> *= <bounds>",
        "<u>[<at>] = <bound>",
        "<u>[<at>] += 0.25 * <bound>",
        "<u>[1:] = <u>[:-1]",
        "<u>[:2] -= 0.25 * np.sin(<u>[1:])",
        "<u>[:] = <bounds>",
        "np.multiply(<u>, <bound>, out=<u>)",
        "kept.append(<s>)",
        "i = (i + <i>) % 3",
    ),
    "for": (
        "for <i> in range({most}):",
        "for <i> in range(3, 0, -1):",
        "for <s> in <u>:",
        "for <i>, <s> in enumerate(<u>):",
        "for <s>, <s> in zip(<u>, 2.0 * <u>):",
        "for <s> in [<s>, <bound>]:",
        "for <s> in kept[:4]:",
    ),
    "while": ("while {count} < {most}:", "while {count} < {most} and <test>:"),
    "inputs": (
        "(s=<bound>, u=<u>, depth={depth})",
        "(<bound>, <u>, {depth})",
        "(<s>, <u>.copy(), {depth})",
        "(<s>, np.sin(<u>), depth={depth})",
    ),
    "call": ("<s>, <u> = {one}", "<s> = np.sin({one}[0] * <s> - 0.5 * {two}[0])",
             "if <s> < <const> or {one}[0] > 0.2:"),
}  # fmt: skip
"""What a symbol may be; `<symbol>` stands for any, and {word} for what the writer knows."""


@dataclass
class Writer:
    """Writes one module; `whole(low, high)` draws a number between the two, both included."""

    whole: Callable[[int, int], int]
    lines: list[str] = field(default_factory=list)
    takes: dict[str, list[int]] = field(default_factory=dict)
    indent: int = 0
    loops: int = 0
    times: int = 1
    ticks: int = 0
    counters: int = 0

    def module(self) -> str:
        """One to three functions, of which the last is the program: `main(s, u, depth)`."""
        self.lines = [HEADER]
        for name in ("main", "other main", "third main")[: self.whole(1, 3)][::-1]:
            self.function(name.replace(" ", "_"))
        return "\n".join(self.lines) + "\n"

    def function(self, name: str) -> None:
        """One that may call itself, before anything else and where nothing loops."""
        self.ticks, again = 0, 0
        self.lines += ["", "", "@program", f"def {name}(s, u, depth):"]
        with self.inside():
            self.say("t, r = 0.5 * s, np.cos(s)")
            self.say("v, w = u.copy(), np.zeros(3)")
            self.say("i, j, kept = 1, 2, []")
            if self.whole(0, 2) == 0:
                self.say("if depth <= 0:")
                with self.inside():
                    self.say("return <bound>, <u>")
                again = self.whole(1, 2)
                for _ in range(again):
                    self.statements(1, 1)
                    self.say(f"<s>, <u> = {self.call(name, 'depth - 1')}")
            self.statements(self.whole(2, 5), 2)
            self.say("return <bound>, <u>")
        ticks = [self.ticks + 4]
        for _ in range(2):
            ticks.append(ticks[0] + again * ticks[-1])
        self.takes[name] = ticks

    def statements(self, count: int, depth: int) -> None:
        """So many, in which others are nested up to a depth."""
        for _ in range(count):
            self.ticks += 2 * self.times
            match self.whole(0, 9 if depth else 5):
                case 0 | 1:
                    self.say("<assignment>")
                case 2 | 3:
                    self.say("<update>")
                case 4 | 5:
                    self.calling()
                case 6 | 7:
                    self.loop(depth - 1)
                case _:
                    self.branch(depth - 1)

    def calling(self) -> None:
        """A call, or two of them in an expression, of what does not take too long here."""
        able = [n for n, ticks in self.takes.items() if 2 * self.times * ticks[1] < MOST_TICKS]
        if not able:
            self.say("<assignment>")
            return
        name = able[self.whole(0, len(able) - 1)]
        self.ticks += 2 * self.times * self.takes[name][1]
        depths = ("0", "1", "min(depth, 1)")
        one, two = (self.call(name, depths[self.whole(0, 2)]) for _ in range(2))
        line = self.drawn("<call>").format(one=one, two=two)
        self.say(line)
        if line.endswith(":"):
            with self.inside():
                self.say("<assignment>")

    def call(self, name: str, depth: str) -> str:
        return name + self.drawn("<inputs>").format(depth=depth)

    def branch(self, depth: int) -> None:
        self.say("if <test>:")
        with self.inside():
            self.statements(self.whole(1, 2), depth)
            leave = ("", "", "", "return <bound>, <u>", "break", "continue")
            self.say(leave[self.whole(0, 5 if self.loops else 3)])
        match self.whole(0, 2):
            case 0:
                self.say("elif <test>:")
                with self.inside():
                    self.statements(1, depth)
                self.say("else:")
                with self.inside():
                    self.say("pass")
            case 1:
                self.say("else:")
                with self.inside():
                    self.statements(1, depth)

    def loop(self, depth: int) -> None:
        """One that goes around four times at most; a `while` counts before all else."""
        self.counters += 1
        count, most = f"k{self.counters}", self.whole(0, 4)
        if self.whole(0, 1):
            self.say(self.drawn("<for>").format(most=most))
            first = []
        else:
            self.say(f"{count} = 0")
            self.say(self.drawn("<while>").format(count=count, most=most))
            first = [f"{count} += 1"]
        self.loops, self.times = self.loops + 1, 4 * self.times
        with self.inside():
            for line in first:
                self.say(line)
            self.statements(self.whole(1, 3), depth)
        self.loops, self.times = self.loops - 1, self.times // 4

    def drawn(self, text: str) -> str:
        """The text with all its symbols replaced."""

        def one(symbol: re.Match[str]) -> str:
            options = GRAMMAR[symbol[1]]
            return self.drawn(options[self.whole(0, len(options) - 1)])

        return re.sub(r"<(\w+)>", one, text)

    def say(self, line: str) -> None:
        if line:
            self.lines.append("    " * self.indent + self.drawn(line))

    @contextmanager
    def inside(self) -> Iterator[None]:
        self.indent += 1
        yield
        self.indent -= 1
