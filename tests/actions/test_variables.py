"""The variables of a state: what is live, by programs in which a value is its history."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest

from ckio.actions.variables import TOGETHER, ChainFlows, Flow, Names, Step, Variables, following
from ckio.errors import BadInput
from ckio.platform.chain import Chain

from .random_variables import NAMES, random_variables

CHAIN = Chain(steps=2, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
Value = tuple[object, ...]
State = dict[str, Value]


# --- liveness by its definition


class Program:
    """Straight-line code on symbols; what it reads is logged, what is wrong to read ends it."""

    def __init__(self, steps: list[Step], seed: Names) -> None:
        self.steps, self.seed = steps, seed
        self.right: list[State] = [{name: (name,) for name in NAMES}]
        for i in range(len(steps)):
            self.right.append(self.after(i, steps[i].forward, self.right[-1]))

    def after(self, i: int, flow: Flow, state: State) -> State:
        """What step i leaves, forward or recording: the same, where it finds what is right."""
        forward = self.steps[i].forward
        found = tuple(state[name] for name in sorted(forward.use))
        new = dict(state)
        for name in flow.out:
            # What is overwritten in whole does not depend on what it was, whatever that is.
            old = self.right[i][name] if name in flow.kill else state[name]
            new[name] = (i, name, found, old, name in forward.out)
        return new

    def log(self, moves: str, begin: int, state: State) -> Iterator[tuple[str, int, Value]]:
        """What is read from x_begin on.

        Moves go forward (f), record (r), turn at the state reached (then on: b back by a tape that
        was recorded here, t back by one that was read).
        """
        tapes: dict[int, Value] = {}
        i = begin
        if i == len(self.steps):
            yield from ((name, i, state[name]) for name in sorted(self.seed))
        for move in moves:
            if move in "fr":
                flow = self.steps[i].forward if move == "f" else self.steps[i].record
                yield from ((name, i, state[name]) for name in sorted(flow.use))
                tapes[i] = tuple(state[name] for name in sorted(flow.use))
                state, i = self.after(i, flow, state), i + 1
                if i == len(self.steps):
                    yield from ((name, i, state[name]) for name in sorted(self.seed))
            else:
                step = self.steps[i - 1]
                yield from ((name, i, state[name]) for name in sorted(step.reverse.use))
                i -= 1
                tape = tapes.get(i) if move == "b" else "read"
                state = state | {name: ("spoilt", i, name) for name in step.reverse.out}
                right = move == "t" or tape == self.taped(i)
                state = state | {
                    name: self.right[i][name] if right else ("restored", i, name, tape)
                    for name in step.restored
                }

    def taped(self, i: int) -> Value:
        return tuple(self.right[i][name] for name in sorted(self.steps[i].record.use))

    def programs(self, begin: int) -> Iterator[str]:
        """All ways forward, each with all ways back, as far as there are steps and tapes."""
        for forth in range(len(self.steps) - begin + 1):
            for moves in product("fr", repeat=forth):
                back = ["b" if move == "r" else "t" for move in reversed(moves)] + ["t"] * begin
                yield "".join(moves) + "".join(back)

    def live(self, begin: int, name: str) -> bool:
        """Whether some program reads something else if this variable of x_begin is another.

        What is wrong to read in any case counts for nothing: other variables would be read there.
        """
        right, other = self.right[begin], self.right[begin] | {name: ("other",)}
        for moves in self.programs(begin):
            both = zip(self.log(moves, begin, right), self.log(moves, begin, other), strict=True)
            for (read, i, value), (_, _, instead) in both:
                if value == self.right[i][read] and instead != value:
                    return True
        return False


def test_a_variable_is_dead_where_changing_it_changes_nothing_and_else_stored_if_it_changes() -> (
    None
):
    for seed in range(100):
        random = Random(seed)
        length = random.randint(1, 4)
        variables = random_variables(random, length)
        over = variables.over(length)
        program = Program([over[i] for i in range(length)], variables.seed)
        brute = {name: [program.live(i, name) for i in range(length + 1)] for name in NAMES}
        told = {name: over.live(name, seed=name in variables.seed) for name in NAMES}
        assert {name: live.tolist() for name, live in told.items()} == brute, f"seed {seed}"
        assert variables.live == {name for name in NAMES if any(brute[name])}, f"seed {seed}"
        flows = ((it.forward, it.record, it.reverse) for it in (over[i] for i in range(length)))
        touched = set().union(*(flow.out for each in flows for flow in each))
        assert variables.changed == touched
        assert variables.stored == variables.live & touched
        assert variables.taped == variables.tape & touched
        assert variables.restart == sum(variables.nbytes[name] for name in variables.stored)


def test_the_version_of_a_variable_is_where_the_forward_overwrote_it_last() -> None:
    a, b = Step(Flow((), {"a"})), Step(Flow(), Flow((), {"a"}))
    steps = ChainFlows([a, b, b, a], 4)
    assert steps.versions("a").tolist() == [0, 1, 1, 1, 4]
    assert steps.versions("b").tolist() == [0] * 5
    assert [steps[i] for i in range(4)] == [a, b, b, a]
    assert steps.different == [a, b]


def test_runs_are_the_longest_spans_of_equal_steps() -> None:
    kinds = [Step(Flow({name})) for name in NAMES]
    for seed in range(20):
        random = Random(seed)
        given = [random.choice(kinds[: 1 + seed % 4]) for _ in range(12)]
        steps = ChainFlows(given, 12)
        for begin, end in combinations(range(13), 2):
            runs = list(steps.runs(begin, end))
            assert [i for run in runs for i in range(*run)] == list(range(begin, end))
            assert all(len({given[i] for i in range(*run)}) == 1 for run in runs)
            assert all(given[run[0] - 1] != given[run[0]] for run in runs[1:])
    assert list(ChainFlows(kinds[0], 10**6).runs(3, 10**6)) == [(3, 10**6)]


def test_following_is_the_next_place_at_which_something_happens() -> None:
    happens = np.array([False, True, False, True, False])
    assert following(happens).tolist() == [1, 1, 3, 3, 5]


# --- what belongs together


def treated(variables: Variables, name: str) -> object:
    """All that is said of a variable, with the name itself left out."""
    flows = [
        (
            [
                name in names
                for flow in (step.forward, step.record, step.reverse)
                for names in (flow.use, flow.out, flow.kill)
            ],
            name in step.restored,
        )
        for step in variables.different
    ]
    return name in variables.live, name in variables.tape, flows


def test_exactly_the_variables_that_all_steps_treat_alike_are_one() -> None:
    for seed in range(100):
        random = Random(seed)
        length = random.randint(1, 3)
        variables = random_variables(random, length)
        grouped = variables.together()
        group = {name: part for part in grouped.nbytes for name in part.split(TOGETHER)}
        assert sorted(group) == sorted(NAMES)
        for one, other in product(NAMES, repeat=2):
            same = treated(variables, one) == treated(variables, other)
            assert (group[one] == group[other]) is same, f"seed {seed}"
        for part, nbytes in grouped.nbytes.items():
            assert nbytes == sum(variables.nbytes[name] for name in part.split(TOGETHER))
        parts = {group[name] for name in variables.stored}
        assert grouped.restart == sum(grouped.nbytes[part] for part in parts)
        before, after = variables.over(length), grouped.over(length)
        for name, part in group.items():
            assert before.versions(name).tolist() == after.versions(part).tolist()
            for i in range(length):
                assert (name in before[i].forward.use) == (part in after[i].forward.use)
                assert (name in before[i].record.kill) == (part in after[i].record.kill)
                assert (name in before[i].restored) == (part in after[i].restored)
        assert grouped.together() == grouped


def test_a_whole_group_is_used_if_a_part_is_and_killed_if_all_are() -> None:
    used, killed = Flow({"a"}, {"a", "b"}, {"b"}), Flow({"b"}, {"a", "b"}, {"a", "b"})
    step = Step(used, killed, restored={"a", "b"})
    variables = Variables({"a": 1, "b": 2}, step, seed=["b"])
    assert list(variables.together().nbytes) == ["a", "b"]
    group = {"a+b"}
    assert variables.together(whole=True) == Variables(
        {"a+b": 3}, Step(Flow(group, group), Flow(group, group, group), restored=group), group
    )


def test_a_name_that_says_several_already_stays_by_itself() -> None:
    flow = Flow({"a", "b", "a+b"}, {"a", "b", "a+b"}, {"a", "b", "a+b"})
    both = Variables({"a": 1, "b": 2, "a+b": 4, "c": 8}, Step(flow)).together()
    assert both.nbytes == {"a": 1, "b": 2, "a+b": 4, "c": 8}
    others = Variables({"a": 1, "b": 2, "c+d": 4}, Step(Flow({"a", "b", "c+d"}))).together()
    assert others.nbytes == {"a+b": 3, "c+d": 4}


# --- what is asked, and what is refused


def test_the_first_steps_alone_may_treat_more_alike() -> None:
    one, two = Step(Flow({"a", "b"})), Step(Flow({"a"}))
    variables = Variables({"a": 1, "b": 2}, (one, one, two))
    assert variables.cut(2) == Variables({"a": 1, "b": 2}, (one, one))
    assert variables.cut(3) == variables
    assert list(variables.cut(2).together().nbytes) == ["a+b"]
    assert Variables({"a": 1, "b": 2}, one).cut(2) == Variables({"a": 1, "b": 2}, one)


def test_steps_are_as_many_as_the_chain_has() -> None:
    step = Step(Flow({"a"}))
    variables = Variables({"a": 1}, [step, step])
    assert variables.over(2) is variables.over(2)
    with pytest.raises(BadInput, match="2 steps say what they use; the chain has 3"):
        variables.over(3)
    with pytest.raises(BadInput, match="2 steps say what they use; the chain has 3"):
        replace(CHAIN, steps=3, variables=variables)
    assert replace(CHAIN, variables=variables).with_steps(1).variables == variables.cut(1)
    with pytest.raises(BadInput, match="2 steps say what they use; the chain has 5"):
        replace(CHAIN, variables=variables).with_steps(5)


def test_all_that_is_stored_may_go_together() -> None:
    uses = Flow({"u", "v", "map"}, {"u", "v", "dead"}, {"u", "dead"})
    variables = Variables({"u": 1, "v": 2, "map": 4, "dead": 8}, Step(uses, Flow({"u"}, uses.out)))
    grouped = variables.together(whole=True)
    assert grouped.nbytes == {"u+v": 3, "map": 4, "dead": 8}
    assert grouped.stored == {"u+v"}


@pytest.mark.parametrize(
    ("nbytes", "message"),
    [
        ({}, "how large a, b is; it has none"),
        ({"a": 1}, "how large b is; it has a"),
        ({"a": 1, "b": -1}, r"nbytes\['b'\] = -1"),
        ({"a": 1, "b": 1.0}, r"nbytes\['b'\] = 1.0"),
        ({"a": True, "b": 1}, r"nbytes\['a'\] = True"),
        ({"a": 1, "b": 1, "": 1}, "nbytes has ''"),
        ({"a": 1, "b": 1, 3: 1}, "nbytes has 3"),
        ([("a", 1)], "map each variable to its bytes"),
    ],
)
def test_every_variable_has_a_name_and_a_size(nbytes: Any, message: str) -> None:
    with pytest.raises(BadInput, match=f"^Variables: .*{message}"):
        Variables(nbytes, Step(Flow({"a"})), seed={"b"})


def test_sizes_are_plain_whole_numbers_of_which_no_sum_overflows_and_steps_are_steps() -> None:
    step = Step(Flow({"a"}))
    assert type(Variables({"a": np.int64(3)}, step).nbytes["a"]) is int
    variables = Variables({"a": 2**61, "b": 2**61}, step)
    with pytest.raises(BadInput, match="variables of all states and tapes together must be below"):
        replace(CHAIN, variables=variables)
    for steps in (Flow({"a"}), [step, "a"], 3):
        with pytest.raises(BadInput, match=r"Variables: steps has .*must be a Step"):
            Variables({"a": 1}, steps)  # type: ignore[arg-type]
