"""`validate` where checkpoints are single variables, one rule after the other."""

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput, IllegalAction
from ckio.schedule import Schedule
from ckio.schedule.replay import validate
from ckio.testing import a

from .test_versions import PLATFORM, THREE, chain_of, t, x

KEEPS = Variables({"a": 1}, Step(Flow(["a"], ["a"], ["a"]), record=Flow((), ["a"], ["a"])))
"""Its tape is made of nothing; what a step records is right only if it was right before."""


def refusal(
    *actions: Action, variables: Variables = THREE, steps: int = 6, stored: object = ()
) -> str:
    """The words in which the actions are refused, or nothing."""
    schedule = Schedule(chain_of(variables, steps), actions, stored)  # type: ignore[arg-type]
    try:
        assert validate(schedule, PLATFORM).count == len(actions)
    except (IllegalAction, BadInput) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_what_is_missing_only_because_it_was_missing_before_is_found_step_by_step() -> None:
    """After x_n none of the steps that are recorded leaves a value of the forward."""
    for steps in (5, 50):
        records = [Record(i, i + 1) for i in range(steps - 1)]
        actions: list[Action] = [Advance(0, steps), *records]
        last = Record(steps - 1, steps), Reverse(steps - 1, steps)
        assert refusal(*actions, *last, variables=KEEPS, steps=steps) == ""
        assert "a as in x_3; its value is not one" in refusal(
            *actions, Advance(3, 4), variables=KEEPS, steps=steps
        )


def test_a_chain_recorded_again_and_again() -> None:
    made = Variables({"a": 1}, Step(Flow((), ["a"], ["a"])))
    for times in (5, 100):
        again: list[Action] = [Record(0, 1000)] * times
        assert refusal(*again, Reverse(0, 1000), variables=made, steps=1000) == ""


def test_a_step_reversed_by_its_variables_leaves_no_tape() -> None:
    """Step 2 has no tape that would have to be read; the tape of all steps is lost with it."""
    does, other = Step(Flow(["a"], ["a"], ["a"])), Step(Flow((), ["b"]))
    variables = Variables({"a": 1, "b": 1}, [does, does, other, does], (), ["a"])
    back = Record(0, 4), Reverse(3, 4), Reverse(2, 3)
    assert refusal(*back, Reverse(1, 2), variables=variables, steps=4) == ""
    lost = Record(0, 4), Read(a(3), 0), Reverse(2, 3), Reverse(1, 2)
    words = refusal(*lost, variables=variables, steps=4, stored=[{a(3)}])
    assert words.endswith("needs the tape of [1, 2); there is no tape")


def test_adjoints_are_stored_whole() -> None:
    named = Key(Kind.ADJOINT, 6, "a")
    assert "adjoints are stored whole" in refusal(Advance(0, 6), Write(named, 0))
    assert "it is not stored there" in refusal(Read(named, 0), Discard(named, 0))


def test_what_changed_after_the_forward_came_somewhere_is_no_longer_where_it_stands() -> None:
    stored = [{x(3, "a"), x(6, "a"), t(2, "a")}]  # the register `stands` tells them apart
    go = Record(0, 6), Reverse(4, 6)
    assert refusal(*go, stored=stored) == refusal(*go, Read(x(6, "a"), 0), stored=stored) == ""
    assert refusal(*go, Read(x(3, "a"), 0), Read(x(6, "a"), 0), stored=stored) == ""
    assert refusal(*go, Read(t(2, "a"), 0), stored=stored) == ""
