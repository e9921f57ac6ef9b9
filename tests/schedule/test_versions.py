"""The Machine by variables against symbols: it refuses just where a value would be wrong."""

from collections import Counter
from copy import copy
from random import Random

import pytest
from drawing import is_allowed

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Names, Step, Variables
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine, Versions
from ckio.schedule.replay import validate
from tests.actions.random_variables import NAMES, random_variables

LEVELS = 2
PLATFORM = Platform(tuple(Level(name=f"level{number}") for number in range(LEVELS)))


def chain_of(variables: Variables, steps: int) -> Chain:
    return Chain(
        steps=steps,
        advance=1,
        record=1,
        reverse=1,
        restart=1,
        tape=1,
        adjoint=1,
        variables=variables,
    )


class Refused(Exception):
    """What a step finds wrong, or None where it is another rule that is broken."""

    def __init__(self, name: str | None = None, step: int = 0) -> None:
        super().__init__(name, step)
        self.name, self.step = name, step


class Symbols:
    """Registers and levels that hold values; one is its history, told apart by a number."""

    def __init__(self, variables: Variables, length: int) -> None:
        self.variables, self.length = variables, length
        over = variables.over(length)
        self.steps = [over[i] for i in range(length)]
        self.numbers: dict[object, int] = {}
        self.right = [{name: self.value(name) for name in NAMES}]
        for i, step in enumerate(self.steps):
            self.right.append(self.after(i, step.forward, self.right[i]))
        self.live = [
            {name for name in variables.stored if over.live(name, seed=name in variables.seed)[i]}
            for i in range(length + 1)
        ]
        self.state = dict(self.right[0])
        self.tapes: list[tuple[int, dict[str, int]]] = []  # the step, and x_i as it was found
        self.taped: dict[str, int] = {}
        self.adjoint, self.turned, self.reversed = length, False, False
        self.levels: list[dict[Key, object]] = [{} for _ in range(LEVELS)]

    def value(self, *history: object) -> int:
        return self.numbers.setdefault(history, len(self.numbers))

    def after(self, i: int, flow: Flow, state: dict[str, int]) -> dict[str, int]:
        forward, new = self.steps[i].forward, dict(state)
        found = tuple(state[name] for name in sorted(forward.use))
        for name in flow.out:
            old = self.right[i][name] if name in flow.kill else state[name]
            new[name] = self.value(i, name, found, old, name in forward.out)
        return new

    def version(self, name: str, i: int) -> int:
        return max((j for j in range(1, i + 1) if name in self.steps[j - 1].forward.out), default=0)

    def is_right(self, name: str) -> bool:
        return any(self.state[name] == right[name] for right in self.right)

    def check(self, names: Names, i: int, state: dict[str, int]) -> None:
        if wrong := [name for name in names if state[name] != self.right[i][name]]:
            raise Refused(min(wrong), self.version(min(wrong), i))

    def do(self, action: Action) -> None:
        match action:
            case Advance(begin, end) | Record(begin, end):
                self.forward(begin, end, recording=isinstance(action, Record))
            case Reverse(begin, end):
                self.back(begin, end)
            case Write(key, level):
                if (value := self.what(key)) is None or key in self.levels[level]:
                    raise Refused
                self.levels[level][key] = value
            case Read(key, level):
                if key not in self.levels[level]:
                    raise Refused
                self.read(key, self.levels[level][key])
            case Discard(key, level):
                if self.levels[level].pop(key, None) is None:
                    raise Refused

    def forward(self, begin: int, end: int, *, recording: bool) -> None:
        if end > self.length:
            raise Refused
        state, tapes = self.state, []
        for i in range(begin, end):
            flow = self.steps[i].record if recording else self.steps[i].forward
            self.check(flow.use, i, state)
            tapes.append((i, state))
            state = self.after(i, flow, state)
        if end == self.length and not self.turned and self.adjoint == self.length:
            self.check(self.variables.seed, end, state)
        self.turned |= end == self.length
        self.state = state
        if recording:
            self.tapes, self.taped = tapes, {}

    def back(self, begin: int, end: int) -> None:
        recorded = [i for i, _ in self.tapes if i >= begin] == list(range(begin, end))
        if self.adjoint != end or not (recorded or (end == begin + 1 and self.is_taped(begin))):
            raise Refused
        if end == self.length and not self.turned:
            raise Refused
        state = dict(self.state)
        for i in reversed(range(begin, end)):
            step = self.steps[i]
            self.check(step.reverse.use, i + 1, state)
            state |= {name: self.value("spoilt", len(self.numbers)) for name in step.reverse.out}
            state |= {name: self.right[i][name] for name in step.restored}
        self.state, self.adjoint, self.reversed = state, begin, True
        self.tapes = [tape for tape in self.tapes if recorded and tape[0] < begin]

    def is_taped(self, i: int) -> bool:
        needed = self.variables.taped & self.steps[i].record.use
        there = all(self.taped.get(name) == self.right[i][name] for name in needed)
        return bool(self.variables.taped) and there

    def what(self, key: Key) -> object:
        """The value of a key, if the registers hold just that; restart data has names only."""
        name, at, alone = key.name, key.step, len(self.tapes) == 1
        if key.kind is Kind.ADJOINT:
            there = self.adjoint == at and (self.turned or at < self.length)
            return "adjoint" if there else None
        if key.kind is Kind.TAPE and not name:
            return "tape" if alone and self.tapes[0][0] == at else None
        if name not in NAMES or not name or at > self.length or self.version(name, at) != at:
            return None
        if key.kind is Kind.RESTART:
            value = self.state[name]
        elif alone:
            i, state = self.tapes[0]
            if name not in self.variables.tape & self.steps[i].record.use:
                return None
            value = state[name]
        else:
            value = self.taped.get(name, -1)
        return value if value == self.right[at][name] else None

    def read(self, key: Key, value: object) -> None:
        match key.kind:
            case Kind.RESTART:
                self.state = self.state | {key.name: value}  # type: ignore[dict-item]
            case Kind.TAPE if key.name:
                self.taped = self.taped | {key.name: value}  # type: ignore[dict-item]
                self.tapes = []
            case Kind.TAPE:
                self.tapes, self.taped = [(key.step, self.right[key.step])], {}
            case Kind.ADJOINT:
                if self.reversed:
                    raise Refused
                self.adjoint = key.step
                self.turned |= key.step == self.length

    def states(self) -> set[int]:
        """All i of which nothing is missing that is live in x_i, and put into checkpoints."""
        return {
            i
            for i in range(self.length + 1)
            if all(self.state[name] == self.right[i][name] for name in self.live[i])
        }


def random_key(random: Random, symbols: Symbols) -> Key:
    """Of anything; often of what the registers may hold."""
    kind = random.choice((Kind.RESTART, Kind.RESTART, Kind.TAPE, Kind.TAPE, Kind.ADJOINT))
    if kind is Kind.ADJOINT:
        return Key(kind, random.choice((symbols.adjoint, random.randint(0, symbols.length))))
    at = random.randint(0, symbols.length - (kind is Kind.TAPE))
    name = random.choice((*NAMES, "") if kind is Kind.TAPE else (*NAMES, *NAMES, "", "z"))
    if kind is Kind.TAPE and symbols.tapes and random.random() < 0.7:
        at = symbols.tapes[0][0]
    if name in NAMES and name and random.random() < 0.9:
        at = symbols.version(name, at)
    return Key(kind, at, name)


def random_action(random: Random, symbols: Symbols, at: int) -> Action:
    """Any action; often the next one of a sweep that stands at x_at."""
    move = random.choice((Advance, Record, Record, Reverse, Write, Write, Read, Read, Discard))
    if move is Reverse:
        end = symbols.adjoint if random.random() < 0.9 and symbols.adjoint else symbols.length
        return Reverse(random.randint(max(0, end - random.choice((1, 1, 2, 9))), end - 1), end)
    if move in (Advance, Record):
        begin = at if random.random() < 0.6 else random.randint(0, symbols.length)
        return move(begin, begin + random.randint(1, random.choice((1, 2, 4))))  # type: ignore[operator]
    level = random.randrange(LEVELS)
    there = sorted(symbols.levels[level], key=str)
    if move is not Write and there and random.random() < 0.9:
        return move(random.choice(there), level)  # type: ignore[operator]
    return move(random_key(random, symbols), level)  # type: ignore[operator]


def said(machine: Machine, action: Action) -> str | None:
    """What the machine says to an action that it refuses, which leaves it as it was; else None."""
    before = registers(machine)
    try:
        machine.apply(action)
    except IllegalAction as error:
        assert registers(machine) == before
        return str(error)
    return None


def registers(machine: Machine) -> dict[str, object]:
    own = vars(machine) | {"stored": [set(keys) for keys in machine.stored]}
    own["used"] = list(machine.used)
    versions = machine.versions
    assert versions is not None
    held = dict(versions.held), dict(versions.taped), versions.stands
    return own | {"versions": held}


def both_do(random: Random, length: int, count: int) -> Counter[str]:
    """Random actions, done by the machine and with values; how many were refused, and which not."""
    variables = random_variables(random, length)
    machine, symbols = Machine(chain_of(variables, length), PLATFORM), Symbols(variables, length)
    at, told = 0, Counter[str]()
    for _ in range(count):
        action = random_action(random, symbols, at)
        refused = None
        try:
            symbols.do(action)
        except Refused as error:
            refused = error
        allowed = is_allowed(machine, action)
        words = said(machine, action)
        assert (words is None) is allowed is (refused is None), (action, words, refused)
        if refused is None:
            told[type(action).__name__] += 1
            at = action.end if isinstance(action, Advance | Record) else at
            at = action.key.step if isinstance(action, Read) else at
        else:
            assert words is not None
            told["refused"] += 1
            if refused.name is not None:
                assert f"{action}: needs {refused.name} as in x_{refused.step}; " in words
                told["wrong"] += 1
        check_registers(machine, symbols)
    return told


def most_of(symbols: Symbols, i: int) -> int:
    right, stored = symbols.right[i], symbols.variables.stored
    return sum(symbols.state[name] == right[name] for name in stored)


def check_registers(machine: Machine, symbols: Symbols) -> None:
    versions = machine.versions
    assert versions is not None
    for name, has in versions.held.items():
        value = symbols.state[name]
        assert value == symbols.right[has][name] if has is not None else not symbols.is_right(name)
    states = symbols.states()
    assert machine.state in (states or {None})
    if versions.stands in states:
        assert machine.state == versions.stands
    if machine.state is not None:
        assert machine.state == versions.stands or most_of(symbols, machine.state) == max(
            most_of(symbols, i) for i in states
        )
    assert (machine.adjoint, machine.turned) == (symbols.adjoint, symbols.turned)
    assert [set(level) for level in symbols.levels] == machine.stored


def test_what_is_refused_is_just_what_would_use_a_wrong_value() -> None:
    random, told = Random(1), Counter[str]()
    for _ in range(40):
        told += both_do(random, random.randint(1, 6), 60)
    assert min(told.values()) >= 20
    assert len(told) == 8


def test_a_long_span_is_what_its_steps_are_one_by_one() -> None:
    random = Random(0)
    for _ in range(300):
        length = random.randint(2, 9)
        variables = random_variables(random, length)
        whole = Versions(variables, length)
        for name in whole.held:
            whole.held[name] = random.choice(
                (0, 0, whole.of(name, random.randint(0, length)), None)
            )
        single, begin = copy(whole), random.randint(0, length - 2)
        end = random.randint(begin + 1, length)
        move = random.choice(("advance", "record", "reverse"))
        steps = range(begin, end) if move != "reverse" else reversed(range(begin, end))
        found = getattr(whole, move)(begin, end)
        wrong = next(filter(None, (getattr(single, move)(i, i + 1) for i in steps)), None)
        assert found == wrong
        if wrong is None:
            assert whole.held == single.held


# --- one by one


USES_ALL = Flow({"a", "b"}, {"a", "b"}, {"a", "b"})
ONLY_A = Step(USES_ALL, Flow({"a"}, {"a", "b"}, {"a", "b"}))
"""Its tape is made of a, and b is needed to go on."""
THREE = Variables({"a": 1, "b": 2, "Q": 4}, ONLY_A, seed=["b"], tape=["a", "Q"])


def x(step: int, name: str = "") -> Key:
    return Key(Kind.RESTART, step, name)


def t(step: int, name: str = "") -> Key:
    return Key(Kind.TAPE, step, name)


def machine(*actions: Action, variables: Variables = THREE, stored: object = ()) -> Machine:
    made = Machine(chain_of(variables, 6), PLATFORM, stored)  # type: ignore[arg-type]
    for action in actions:
        made.apply(action)
    return made


def refusal(made: Machine, action: Action) -> str:
    words = said(made, action)
    assert words is not None
    return words.partition(": ")[2]


def test_a_step_needs_what_it_uses_and_no_more() -> None:
    start = machine(Write(x(0, "a"), 0), Advance(0, 6), Read(x(0, "a"), 0))
    assert refusal(start, Advance(0, 1)) == "needs b as in x_0; it is as in x_6"
    start.apply(Record(0, 1))
    assert start.state is None
    assert (
        refusal(start, Record(1, 2))
        == "needs a as in x_1; its value is not one of the forward sweep"
    )
    start.apply(Discard(x(0, "a"), 0))
    assert refusal(start, Write(x(1, "a"), 0)) == (
        "needs a as in x_1; its value is not one of the forward sweep"
    )


def test_the_seed_has_to_be_right_when_the_forward_first_gets_to_the_end() -> None:
    keys = [{x(5, "a"), x(5, "b"), Key(Kind.ADJOINT, 6)}]
    start = machine(Read(x(5, "a"), 0), stored=keys)
    assert (
        refusal(start, Record(5, 6))
        == "needs b as in x_6; its value is not one of the forward sweep"
    )
    begun = machine(Read(Key(Kind.ADJOINT, 6), 0), Read(x(5, "a"), 0), stored=keys)
    begun.apply(Record(5, 6))
    begun.apply(Reverse(5, 6))
    start.apply(Read(x(5, "b"), 0))
    start.apply(Record(5, 6))
    assert start.turned


def test_whole_restart_data_is_neither_written_nor_read() -> None:
    whole = "this chain's restart data is stored variable by variable"
    start = machine(stored=[{x(3)}])
    assert refusal(start, Write(x(0), 0)) == refusal(start, Read(x(3), 0)) == whole
    start.apply(Discard(x(3), 0))
    assert (
        refusal(start, Write(x(0, "z"), 0))
        == "z is not a variable of this chain, which has a, b, Q"
    )


def test_a_version_has_one_name() -> None:
    assert refusal(machine(Advance(0, 3)), Write(x(3, "Q"), 0)) == (
        "Q in x_3 is still as in x_0: name it x_0.Q"
    )
    with pytest.raises(BadInput, match=r"starts with x_3\.Q on level 1 \(level1\); Q in x_3 is st"):
        machine(stored=[set(), {x(3, "Q")}])
    with pytest.raises(BadInput, match=r"x_0\.z is one variable; this chain knows a, b, Q"):
        machine(stored=[{x(0, "z")}])
    assert machine(stored=[{x(3, "a"), t(0, "Q")}]).used == [5, 0]


def test_a_tape_is_put_together_of_the_variables_that_it_is_made_of() -> None:
    start = machine(
        Record(0, 1), Write(t(0, "a"), 0), Record(1, 6), Reverse(1, 6), Read(t(0, "a"), 0)
    )
    assert start.tape is None
    start.apply(Reverse(0, 1))
    assert start.adjoint == 0


def test_a_tape_of_what_the_recording_step_does_not_use_is_not_written() -> None:
    start = machine(Record(0, 1))
    for name in ("b", "Q"):
        assert refusal(start, Write(t(0, name), 0)) == f"the tape of step 0 does not contain {name}"
    assert refusal(machine(), Write(t(0, "a"), 0)) == (
        "needs a as in x_0; its value is not one of the forward sweep"
    )


def test_a_whole_tape_takes_the_place_of_one_that_was_put_together() -> None:
    start = machine(Record(0, 5), Record(5, 6), stored=[{t(4, "a"), t(2)}])
    for action in (Reverse(5, 6), Read(t(4, "a"), 0), Read(t(2), 0)):
        start.apply(action)
    assert start.tape == (2, 3)
    assert refusal(start, Reverse(4, 5)) == "needs the tape of [4, 5); the tape is that of [2, 3)"


def test_the_state_is_where_the_forward_came_to_if_all_is_there_that_is_live() -> None:
    only_read = Variables({"a": 1, "Q": 1}, Step(Flow({"a", "Q"}, {"a"}, {"a"})))
    made = machine(Write(x(0, "a"), 0), Advance(0, 4), variables=only_read)
    assert made.state == 4
    made.apply(Read(x(0, "a"), 0))
    assert made.state == 0


def test_of_states_that_are_the_same_it_is_where_the_forward_came_to_or_the_first() -> None:
    still, change = Step(Flow({"a"})), Step(Flow({"a"}, {"a"}, {"a"}))
    steps = [change, still, still, change, still, still]
    made = machine(variables=Variables({"a": 1}, steps, ["a"]), stored=[{x(1, "a")}])
    for action in (Advance(0, 3), Write(x(1, "a"), 1), Read(x(1, "a"), 0)):
        made.apply(action)
        assert made.state == 3
    made.apply(Advance(3, 6))
    made.apply(Read(x(1, "a"), 0))
    assert made.state == 1
    for begin in (1, 2, 3):
        assert is_allowed(made, Advance(begin, 6))


def test_what_is_dead_in_a_state_may_be_missing() -> None:
    """A ring of two: each step overwrites one in whole and reads the other."""
    names = ("even", "odd")
    steps = [Step(Flow({names[1 - i % 2]}, {names[i % 2]}, {names[i % 2]})) for i in range(6)]
    ring = Variables({"even": 1, "odd": 1}, steps, ["odd"])
    made = machine(Advance(0, 6), Read(x(3, "even"), 0), variables=ring, stored=[{x(3, "even")}])
    assert made.state == 3
    made.apply(Advance(3, 4))
    assert made.state == 4


def test_going_back_spoils_the_state_or_restores_it() -> None:
    nbytes, back = {"a": 1, "b": 1}, (Record(0, 6), Reverse(4, 6))
    spoils = Variables(nbytes, Step(USES_ALL, reverse=Flow((), {"a"})), ["a"])
    assert machine(*back, variables=spoils).state is None
    restores = Step(USES_ALL, reverse=Flow({"a"}, {"a"}), restored={"a", "b"})
    assert machine(*back, variables=Variables(nbytes, restores)).state == 4


def test_a_copy_of_the_machine_goes_its_own_way() -> None:
    start = machine(stored=[{x(3, "a")}])
    other = copy(start)
    other.apply(Read(x(3, "a"), 0))
    assert refusal(other, Advance(0, 1)) == "needs a as in x_0; it is as in x_3"
    start.apply(Advance(0, 1))


def test_validate_says_which_action_and_which_variable() -> None:
    actions = [Write(x(0, "a"), 0), Advance(0, 6), Read(x(0, "a"), 0), Advance(0, 1)]
    with pytest.raises(IllegalAction, match=r"^#3 Advance\[0, 1\): needs b as in x_0; it is as in"):
        validate(Schedule(chain_of(THREE, 6), actions), PLATFORM)
    assert validate(Schedule(chain_of(THREE, 6), actions[:3]), PLATFORM).count == 3


def test_a_million_equal_steps_are_as_many_as_one() -> None:
    length = 10**6
    made = Machine(chain_of(THREE, length), PLATFORM)
    for action in (Write(x(0, "a"), 0), Record(0, length), Reverse(0, length)):
        made.apply(action)
    assert (made.state, made.adjoint) == (length, 0)
    assert made.versions is not None
    assert made.versions.held == {"a": length, "b": length, "Q": 0}
    assert not made.versions.taped
