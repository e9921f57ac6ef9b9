"""`validate` by columns where checkpoints are single variables: it says what the Machine says."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.replay import VariableColumns, validate
from ckio.testing import a
from tests.actions.random_variables import NAMES, random_variables

from .test_versions import PLATFORM, THREE, Symbols, chain_of, random_action, registers, t, x

Case = tuple[Schedule, Platform]
KEEPS = Variables({"a": 1}, Step(Flow(["a"], ["a"], ["a"]), record=Flow((), ["a"], ["a"])))
"""Its tape is made of nothing; what a step records is right only if it was right before."""


def applied(schedule: Schedule, platform: Platform, /) -> Machine:
    """What `validate` means: the actions one after the other."""
    machine = Machine(schedule.chain, platform, schedule.stored)
    for action in schedule.actions:
        machine.apply(action)
    return machine


def outcome(
    interpreter: Callable[[Schedule, Platform], Machine], case: Case
) -> str | dict[str, object]:
    """The registers at the end, or the words in which it was refused."""
    try:
        found: dict[str, object] = registers(interpreter(*case))
    except (IllegalAction, BadInput) as error:
        return f"{type(error).__name__}: {error}"
    return found


def random_start(random: Random, chain: Chain, platform: Platform) -> list[set[Key]]:
    """Some keys, as their steps left them, on two levels; none where they do not fit."""
    variables, stored = chain.variables, [set[Key](), set[Key]()]
    assert variables is not None
    for keys in stored:
        while random.random() < 0.3:
            kind = random.choice((Kind.RESTART, Kind.TAPE, Kind.TAPE, Kind.ADJOINT))
            step = random.randrange(chain.length)
            name = random.choice(NAMES) if kind is Kind.RESTART else ""
            name = random.choice((*NAMES, "")) if kind is Kind.TAPE else name
            over = variables.over(chain.length)
            keys.add(Key(kind, over.versions(name).item(step) if name else step, name))
    try:
        Machine(chain, platform, stored)
    except IllegalAction:
        return [set(), set()]
    return stored


def random_case(seed: int) -> Case:
    """A legal schedule by variable; some end in an action that is not, or in three of any sort."""
    random = Random(seed)
    length = random.randint(1, 6)
    chain = chain_of(random_variables(random, length), length)
    if random.random() < 0.3:
        chain = replace(chain, tape=[random.randint(1, 4) for _ in range(length)])
    levels = (Level(name=name, capacity=random.choice((None, 20))) for name in ("near", "far"))
    platform = Platform(tuple(levels), random.choice((None, None, 3)))
    stored = random_start(random, chain, platform)
    assert chain.variables is not None
    machine, symbols = Machine(chain, platform, stored), Symbols(chain.variables, length)
    symbols.levels = [
        {key: symbols.right[key.step][key.name] if key.name else "whole" for key in keys}
        for keys in stored
    ]
    actions: list[Action] = []
    at, wrong = 0, random.choice((0, 0, 0.03))
    for _ in range(random.choice((10, 40, 120))):
        action = random_action(random, symbols, at)
        try:
            machine.apply(action)
        except (IllegalAction, BadInput):
            if random.random() < wrong:
                actions.append(action)
                break
            continue
        actions.append(action)
        symbols.do(action)
        at = action.end if isinstance(action, Advance | Record) else at
        at = action.key.step if isinstance(action, Read) else at
    more = 3 if random.random() < 0.2 else 0
    actions += [random_action(random, symbols, at) for _ in range(more)]
    return Schedule(chain, actions, stored), platform


RULES = {
    "as in x_",
    "is still as in",
    "not a variable",
    "variable by variable",
    "not one of the forward sweep",
    "does not contain",
    "past the end",
    "needs the adjoint at",
    "needs the tape of [",
    "needs the tape of step",
    "there is no adjoint yet",
    "already stored there",
    "are free",
    "it is not stored there",
    "comes after a Reverse",
    "of working memory",
}
"""A phrase of each rule that there is for these schedules."""


def agreed(seeds: range) -> Counter[str]:
    """What was said of so many schedules; both have to say the same."""
    told = Counter[str]()
    for seed in seeds:
        case = random_case(seed)
        said = outcome(applied, case)
        assert outcome(validate, case) == said, seed
        if isinstance(said, str):
            told.update(rule for rule in RULES if rule in said)
        else:
            told["legal"] += 1
            told["spans"] += any(isinstance(it, Reverse) and it.end - it.begin > 1
                                 for it in case[0].actions)  # fmt: skip
    return told


def test_columns_and_the_machine_agree_on_named_schedules() -> None:
    told = agreed(range(150))
    assert told["legal"] > 50
    assert len(told) > 10


@pytest.mark.slow
def test_they_agree_on_a_long_campaign_that_breaks_every_rule() -> None:
    told = agreed(range(1000, 5000))
    assert told.keys() == RULES | {"legal", "spans"}


# --- one by one


def both(
    *actions: Action, variables: Variables = THREE, steps: int = 6, stored: object = ()
) -> str:
    """The words of both, or nothing."""
    schedule = Schedule(chain_of(variables, steps), actions, stored)  # type: ignore[arg-type]
    said = outcome(applied, (schedule, PLATFORM))
    assert outcome(validate, (schedule, PLATFORM)) == said
    return said if isinstance(said, str) else ""


def held(*actions: Action, variables: Variables, steps: int) -> VariableColumns:
    return VariableColumns(Schedule(chain_of(variables, steps), actions).actions, variables, steps)


def test_what_is_missing_only_because_it_was_missing_before_is_found_step_by_step() -> None:
    """After x_n none of the steps that are recorded leaves a value of the forward."""
    for steps, settled in ((5, True), (50, False)):
        records = [Record(i, i + 1) for i in range(steps - 1)]
        actions: list[Action] = [Advance(0, steps), *records]
        last = Record(steps - 1, steps), Reverse(steps - 1, steps)
        assert held(*actions, variables=KEEPS, steps=steps).settled is settled
        assert both(*actions, *last, variables=KEEPS, steps=steps) == ""
        assert "a as in x_3; its value is not one" in both(
            *actions, Advance(3, 4), variables=KEEPS, steps=steps
        )


def test_a_chain_recorded_again_and_again() -> None:
    made = Variables({"a": 1}, Step(Flow((), ["a"], ["a"])))
    for times in (5, 100):
        again: list[Action] = [Record(0, 1000)] * times
        assert both(*again, Reverse(0, 1000), variables=made, steps=1000) == ""


def test_a_step_reversed_by_its_variables_leaves_no_tape() -> None:
    """Step 2 has no tape that would have to be read; the tape of all steps is lost with it."""
    does, other = Step(Flow(["a"], ["a"], ["a"])), Step(Flow((), ["b"]))
    variables = Variables({"a": 1, "b": 1}, [does, does, other, does], (), ["a"])
    back = Record(0, 4), Reverse(3, 4), Reverse(2, 3)
    assert both(*back, Reverse(1, 2), variables=variables, steps=4) == ""
    lost = Record(0, 4), Read(a(3), 0), Reverse(2, 3), Reverse(1, 2)
    words = both(*lost, variables=variables, steps=4, stored=[{a(3)}])
    assert words.endswith("needs the tape of [1, 2); there is no tape")


def test_adjoints_are_stored_whole() -> None:
    named = Key(Kind.ADJOINT, 6, "a")
    assert "adjoints are stored whole" in both(Advance(0, 6), Write(named, 0))
    assert "it is not stored there" in both(Read(named, 0), Discard(named, 0))


def test_what_changed_after_the_forward_came_somewhere_is_no_longer_where_it_stands() -> None:
    stored = [{x(3, "a"), x(6, "a"), t(2, "a")}]  # the register `stands` tells them apart
    go = Record(0, 6), Reverse(4, 6)
    assert both(*go, stored=stored) == both(*go, Read(x(6, "a"), 0), stored=stored) == ""
    assert both(*go, Read(x(3, "a"), 0), Read(x(6, "a"), 0), stored=stored) == ""
    assert both(*go, Read(t(2, "a"), 0), stored=stored) == ""
