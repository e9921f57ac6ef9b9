"""A model that says what its steps do: less is stored, array by array, and the gradient stays."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_models import digest, reverse_all

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import TOGETHER, Flow, Step, Variables
from ckio.backends.ram import Ram
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import ArrayModel, sizes_of
from ckio.models.vorticity import Vorticity
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.literature import multistage
from ckio.planners.trivial import periodic, recompute_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.testing import a, restore, save, t, x

SIZE = 4
WAYS = ("whole", "half", "added")
DERIVED = {"d": ("a", "b"), "e": ("d", "c")}
RECOMPUTE = (), ("d",), ("e",), ("d", "e")
GROUPED = None, "flow", "state"
"""Each array for itself, or those together that all steps treat alike, or ever more of them."""


@dataclass(frozen=True)
class Line:
    """Into all of an array, half of it, or added to it: a quadratic sum of others."""

    into: str
    way: str
    of: tuple[str, ...]

    def forward(self, arrays) -> None:
        value = sum(0.3 * arrays[name] * (1 - 0.5 * arrays[name]) for name in self.of) + 0.1
        part = slice(SIZE // 2) if self.way == "half" else slice(None)
        if self.way == "added":
            arrays[self.into][...] += 0.25 * value
        else:
            arrays[self.into][part] = value[part]

    def back(self, adjoint, before) -> None:
        part = slice(SIZE // 2) if self.way == "half" else slice(None)
        of_value = np.zeros(SIZE)
        of_value[part] = adjoint[self.into][part]
        if self.way == "added":
            of_value *= 0.25
        else:
            adjoint[self.into][part] = 0
        for name in self.of:
            adjoint[name] += 0.3 * (1 - before[name]) * of_value


AGAIN = tuple(Line(name, "whole", of) for name, of in DERIVED.items())
"""How d and e come from others; every step ends with these."""


@dataclass(frozen=True)
class Code:
    """What steps do: one tuple of lines for all of them, or one for each; and what J reads."""

    steps: tuple[tuple[Line, ...], ...]
    names: tuple[str, ...]
    tape: tuple[str, ...]
    seed: frozenset[str]

    def at(self, i: int) -> tuple[Line, ...]:
        return self.steps[i if len(self.steps) > 1 else 0]

    def flow(self) -> Step | list[Step]:
        """What the lines say, read line by line."""
        found = []
        for lines in self.steps:
            flow = Flow(use={"J"}, out={"J"})
            for line in lines:
                use = {*line.of, *([line.into] if line.way == "added" else [])}
                kill = {line.into} - ({line.into} if line.way == "half" else set())
                flow = flow.then(Flow(use, {line.into}, kill))
            flow = flow.then(Flow({self.names[0]}))
            found.append(Step(flow, record=Flow(read_by_adjoint(self, lines), flow.out, flow.kill)))
        return found if len(found) > 1 else found[0]


def read_by_adjoint(code: Code, lines: Sequence[Line]) -> set[str]:
    """The arrays of x_i of which the derivatives of the lines are made."""
    needed = {code.names[0]}
    for line in reversed(lines):
        needed -= {line.into} if line.way == "whole" else set()
        needed |= {*line.of}
    return needed


def random_code(choose: Random, n: int) -> Code:
    names = ("a", "b", "c", "d", "e", "f", "g", "h")
    # What no line writes stays as it is in x_0.
    written = [name for name in "abcfgh" if choose.random() < 0.6]

    def lines() -> tuple[Line, ...]:
        some = (
            Line(choose.choice(written), choose.choice(WAYS), tuple(choose.sample(names, 2)))
            for _ in range(choose.randrange(5) if written else 0)
        )
        return *some, *AGAIN

    steps = tuple(lines() for _ in range(n if choose.random() < 0.5 else 1))
    tape: set[str] = set()
    code = Code(steps, names, (), frozenset(choose.sample(names, choose.randrange(4))) | {"J"})
    for each in steps:
        tape |= read_by_adjoint(code, each)
    return Code(steps, names, tuple(sorted(tape)), code.seed)


class Coded(ArrayModel):
    """Runs code; J = Σ a² over the steps, and of squares in the end."""

    derived = DERIVED

    def __init__(self, code: Code, *, known: bool = True, recompute: Iterable[str] = ()) -> None:
        self.code = code
        random = np.random.default_rng(0)
        arrays = {name: random.uniform(0.2, 0.8, SIZE) for name in code.names}
        super().__init__(
            {**arrays, "J": 0.0},
            control={name: array for name, array in arrays.items() if name not in DERIVED},
            tape=code.tape,
            flow=code.flow() if known else None,
            seed=code.seed if known else None,
            recompute=recompute,
        )

    def start(self, state):
        super().start(state)
        for line in AGAIN:
            line.forward(state)

    def adjoint_start(self, adjoint):
        arrays = {**self.control}
        for line in AGAIN:
            arrays[line.into] = np.zeros(SIZE)
            line.forward(arrays)
        for line in reversed(AGAIN):
            line.back(adjoint, arrays)
        super().adjoint_start(adjoint)

    def derive(self, name, arrays):
        Line(name, "whole", DERIVED[name]).forward(arrays)

    def step(self, state, i):
        for line in self.code.at(i):
            line.forward(state)
        state["J"] += (state["a"] ** 2).sum()

    def adjoint_step(self, adjoint, tape, i):
        assert tuple(tape) == self.code.tape
        arrays = {name: np.full(SIZE, np.nan) for name in self.code.names}
        arrays |= {name: array.copy() for name, array in tape.items()}
        befores = []
        for line in self.code.at(i):
            befores.append({name: arrays[name].copy() for name in line.of})
            line.forward(arrays)
        adjoint["a"] += 2 * arrays["a"] * adjoint["J"]
        for line, before in zip(reversed(self.code.at(i)), reversed(befores), strict=True):
            line.back(adjoint, before)
        for array in tape.values():  # it may be overwritten
            array[...] = np.nan

    def adjoint_seed(self, state, adjoint, n):
        total = 0.0
        for name in sorted(self.code.seed - {"J"}):
            adjoint[name] += 2 * state[name]
            total += float((state[name] ** 2).sum())
        return total


def coded(code: Code, **options) -> Coded:
    """A model of which a control was changed after it was made."""
    model = Coded(code, **options)
    model.control["g"][...] *= 1.5
    return model


def store_all(model: ArrayModel, n: int) -> tuple[object, ...]:
    return digest(reverse_all(model, n))


def chain_of(model: ArrayModel, n: int, variables: Variables | None = None) -> Chain:
    sizes = sizes_of(model)
    return Chain(steps=n, advance=1, record=1, reverse=1, **sizes, variables=variables)


def two_levels(chain: Chain, slots: int = 2) -> Platform:
    near = Level(name="near", capacity=slots * max(chain.restart, chain.tape))
    far = Level(name="far", write=Affine(1, 0), read=Affine(1, 0))
    return Platform((near, far), working_memory=chain.tape)


def by_period(chain: Chain, platform: Platform) -> Schedule:
    return periodic(chain, platform, period=min(3, chain.length))


PLANNERS = revolve, multistage, hrevolve, mixed, recompute_all, by_period


@given(planner=st.sampled_from(PLANNERS), seed=st.integers(0, 10**6), n=st.integers(2, 9))
def test_with_a_flow_any_schedule_gives_the_gradient_of_store_all_without(planner, seed, n):
    choose = Random(seed)
    code = random_code(choose, n)
    model = coded(code, recompute=choose.choice(RECOMPUTE), known=choose.random() < 0.7)
    platform = two_levels(chain := chain_of(model, n))
    levels = [Ram(capacity=level.capacity) for level in platform.levels]
    run(planner(chain, platform), platform, model, levels)
    assert digest(model) == store_all(coded(code, known=False), n)


class Lowered:
    """A random legal walk to the gradient in which arrays are stored and read one by one."""

    def __init__(
        self, make: Callable[[], ArrayModel], n: int, choose: Random, grouped: str | None
    ) -> None:
        self.make, self.choose, self.n = make, choose, n
        self.model = make()
        variables = self.model.variables
        if grouped is not None:
            variables = variables.together(whole=grouped == "state")
        self.variables = variables
        self.of = {part: name for name in variables.nbytes for part in name.split(TOGETHER)}
        self.chain = chain_of(self.model, n, variables)
        self.platform = Platform((Level(name="near"),))
        self.machine = Machine(self.chain, self.platform)
        self.contents: dict[Key, list[bytes]] = {}
        self.hidden: dict[str, tuple[int, np.ndarray]] = {}
        self.keep(0)
        self.forward(0, n)
        self.back(0, n)

    def often(self) -> bool:
        return self.choose.random() < 0.5

    def do(self, action: Action) -> None:
        self.machine.apply(action)
        match action:
            case Advance(begin, end):
                self.model.advance(begin, end)
            case Record(begin, end):
                self.model.record(begin, end)
            case Reverse(begin, end):
                self.model.reverse(begin, end)
            case Write(key, _):
                self.contents[key] = save(self.model, key)
            case Read(key, _):
                restore(self.model, key, self.contents[key])
            case Discard(key, _):
                del self.contents[key]

    def key(self, kind: Kind, name: str, step: int) -> Key:
        return Key(kind, self.machine.versions.of(name, step), name)

    def live(self, step: int) -> set[str]:
        return {key.name for key in self.chain.parts(x(step))}

    def keep(self, step: int) -> None:
        for key in self.chain.parts(x(step)):
            if key not in self.contents and self.machine.versions.held[key.name] == key.step:
                self.do(Write(key, 0))

    def fetch(self, names: Iterable[str], step: int) -> None:
        """Read what is not there; then what is not as it is in x_step is nothing at all."""
        versions, names = self.machine.versions, sorted(names)
        for name, (version, array) in self.hidden.items():
            if versions.held[self.of[name]] == version:  # another step may want it as it was
                self.model._state[name][...] = array
        self.hidden.clear()
        self.choose.shuffle(names)
        for name in names:
            if versions.held[name] != versions.of(name, step):
                self.do(Read(self.key(Kind.RESTART, name, step), 0))
        self.model._keep_seed()
        for name, array in self.model._state.items():
            if (known := self.of.get(name)) is None:
                right = not self.model._stale
            else:
                right = versions.held[known] == versions.of(known, step)
                if not right:
                    self.hidden[name] = versions.held[known], array.copy()
            if not right:
                array[array != 0] = np.nan  # walls stay 0, whatever is computed again inside

    def forward(self, begin: int, end: int) -> None:
        """From a state that has all the forward needs; some tapes are kept on the way."""
        while begin < end:
            if self.often():
                self.do(Record(begin, begin + 1))
                self.keep_tape(begin)
                begin += 1
            else:
                middle = self.choose.randint(begin + 1, end)
                self.do(Advance(begin, middle))
                begin = middle

    def keep_tape(self, step: int) -> None:
        for key in self.chain.parts(t(step)):
            if key not in self.contents:
                self.do(Write(key, 0))

    def back(self, begin: int, end: int) -> None:
        if end - begin > 1 and self.often():
            middle = self.choose.randrange(begin + 1, end)
            self.fetch(self.live(begin), begin)
            self.forward(begin, middle)
            self.keep(middle)
            self.back(middle, end)
            if self.often():
                self.move_house(middle)
            return self.back(begin, middle)
        if end - begin == 1 and self.often() and self.read_tape(begin):
            return self.do(Reverse(begin, end))
        alone = end - begin == 1 and self.often()
        step = self.variables.over(self.n)[begin]
        self.fetch(step.record.use if alone else self.live(begin), begin)
        self.do(Record(begin, end))
        while begin < end:
            middle = self.choose.randrange(begin, end)
            self.do(Reverse(middle, end))
            end = middle
        return None

    def read_tape(self, step: int) -> bool:
        keys = self.chain.parts(t(step))
        if not self.variables.taped or not all(key in self.contents for key in keys):
            return False
        for key in self.choose.sample(keys, len(keys)):
            if self.machine.versions.taped.get(key.name) != key.step:
                self.do(Read(key, 0))
        return True

    def move_house(self, step: int) -> None:
        """Go on with the adjoint in a new process."""
        self.do(Write(a(step), 0))
        self.hidden.clear()
        self.model = self.make()
        self.machine = Machine(self.chain, self.platform, [self.contents.keys()])
        self.do(Read(a(step), 0))
        self.do(Discard(a(step), 0))


@example(seed=164, n=8, grouped=None)
@example(seed=3798, n=3, grouped=None)  # e of a tape comes from d, which step 0 does not read
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), grouped=st.sampled_from(GROUPED))
def test_arrays_that_are_stored_one_by_one_give_the_same_gradient(seed, n, grouped):
    choose = Random(seed)
    code = random_code(choose, n)
    recompute = choose.choice(RECOMPUTE)
    walk = Lowered(lambda: coded(code, recompute=recompute), n, choose, grouped)
    assert digest(walk.model) == store_all(coded(code, known=False), n)


SOME = (
    Line("a", "added", ("b", "g")),
    Line("f", "whole", ("a", "g")),
    Line("b", "half", ("f", "d")),
    *AGAIN,
)
"""c, g and h stay; f is dead between steps; d comes from a and b, and e from d and c."""


def some(**options) -> Coded:
    names = ("a", "b", "c", "d", "e", "f", "g", "h")
    return Coded(Code((SOME,), names, ("b", "g", "d", "a", "c"), frozenset({"J", "e"})), **options)


def names_in(model: ArrayModel, key: Key) -> list[str]:
    return [field.name for field in model.layout(key)]


def test_checkpoints_hold_what_is_live_and_overwritten_and_tapes_what_is_overwritten():
    model = some()
    assert names_in(model, x(3)) == ["a", "b", "d", "e", "J"]
    assert names_in(model, t(3)) == ["b", "d", "a"]
    assert sizes_of(model)["restart"] == model.variables.restart == 4 * SIZE * 8 + 8
    assert names_in(model, a(3)) == names_in(some(known=False), a(3))
    assert [view.nbytes for view in model.dump(x(0))] == [SIZE * 8] * 4 + [8]
    # What is computed again is in no checkpoint, and what it is computed from is.
    assert names_in(some(recompute=["e"]), x(3)) == ["a", "b", "d", "J"]
    model = some(recompute=["e", "d"])
    assert names_in(model, x(3)) == ["a", "b", "J"]
    assert names_in(model, t(3)) == ["b", "a"]
    known = model.variables
    assert set(known.nbytes) == {*"abcfgh", "J"}
    assert known.tape == {"a", "b", "c", "g"}
    assert known.seed == {"a", "b", "c", "J"}
    assert known.steps.forward == Flow({*"abcg", "J"}, {*"abf", "J"}, {*"af"})
    assert known.steps.record == Flow({*"abcg"}, {*"abf", "J"}, {*"af"})
    model = some(known=False, recompute=["d", "e"])
    assert model.variables is None
    assert names_in(model, x(3)) == ["a", "b", "c", "f", "g", "h", "J"]
    assert names_in(model, t(3)) == ["b", "g", "a", "c"]


def test_an_array_in_a_checkpoint_has_the_name_and_unit_that_it_has_in_the_whole():
    model = some()
    assert model.layout(Key(Kind.RESTART, 2, "b")) == (model.layout(x(0))[1],)
    fields = {field.name: field for field in model.layout(x(0))}
    assert model.layout(Key(Kind.RESTART, 2, "J+a")) == (fields["J"], fields["a"])
    assert model.layout(Key(Kind.TAPE, 2, "d+a")) == (fields["d"], fields["a"])


def test_what_is_stored_in_no_single_array_is_refused():
    model = some(recompute=["e"])
    names = {Kind.RESTART: ("k", "a+k", "a+a", "a+", "e"), Kind.TAPE: ("f", "J"), Kind.ADJOINT: "a"}
    for key in (Key(kind, 0, name) for kind, all_names in names.items() for name in all_names):
        for call in (model.layout, model.dump):
            with pytest.raises(UnsupportedKind, match="single arrays"):
                call(key)


def test_a_name_with_a_plus_in_it_is_that_of_one_array():
    class Plus(ArrayModel):
        def step(self, state, i):
            state["J"] += state["x+y"]

        def adjoint_step(self, adjoint, tape, i):
            adjoint["x+y"] += adjoint["J"]

    flow = Step(Flow(use={"x+y", "J"}, out={"x+y", "J"}))
    model = Plus({"x+y": 1.0, "J": 0.0}, control={"x+y": 1.0}, tape=(), flow=flow)
    assert names_in(model, Key(Kind.RESTART, 0, "x+y")) == ["x+y"]


@pytest.mark.parametrize("name", ["", "a", "g", "J+b+a"])
@pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
def test_a_load_that_fails_leaves_the_model_as_it_was(kind, name):
    if kind is Kind.TAPE:
        name = name.removeprefix("J+")
    model, right = some(), store_all(some(known=False), 5)
    model.advance(0, 4)
    model.record(4, 5)
    model.reverse(4, 5)
    with model.load(x(0), model.layout(x(0))) as into:
        start = save(some(), x(0))
        for buffer, data in zip(into, start, strict=True):
            buffer[:] = data
    model.record(0, 4)
    held = {key: save(model, key) for key in (x(4), t(3), a(4))}
    state = {n: array.tobytes() for n, array in model._state.items()}
    key = Key(kind, 2, name)
    garbage = [b"\xff" * view.nbytes for view in some().load(key, model.layout(key)).__enter__()]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        restore(model, key, garbage[:-1])
    assert {key: save(model, key) for key in held} == held
    assert {n: array.tobytes() for n, array in model._state.items()} == state
    model.reverse(0, 4)
    assert digest(model) == right


def test_the_seed_is_kept_where_the_forward_goes_back_and_nothing_has_to_be_read():
    class Late(ArrayModel):
        """Only the last step changes x, and J is not read before; so x_3 needs no read in x_5."""

        def step(self, state, i):
            state["J"][...] = i * (state["x"] ** 2).sum()

        def adjoint_step(self, adjoint, tape, i):
            adjoint["x"] += 2 * i * tape["x"] * adjoint["J"]
            adjoint["J"][...] = 0

    flow = Step(Flow(use={"x"}, out={"J"}, kill={"J"}))

    def make() -> Late:
        start = np.array([0.5, 2.0])
        return Late({"x": start, "J": 0.0}, control={"x": start}, tape=["x"], flow=flow)

    model = make()
    assert names_in(model, x(0)) == ["J"]
    assert names_in(model, t(0)) == []
    model.advance(0, 5)
    for step in reversed(range(5)):
        model.record(step, step + 1)
        model.reverse(step, step + 1)
    assert digest(model) == store_all(make(), 5)
    assert model.functional == 4 * 4.25


def test_in_a_new_process_a_tape_and_an_adjoint_are_read_in_any_order():
    model, saved = some(), {}
    model.record(0, 4)
    model.reverse(3, 4)
    saved[a(3)] = save(model, a(3))
    model = some()
    model.advance(0, 2)
    model.record(2, 3)
    saved[t(2)] = save(model, t(2))
    for keys in ([a(3), t(2)], [t(2), a(3)]):
        other = some()
        for key in keys:  # no state at all: the tape finds g in x_0
            restore(other, key, saved[key])
        other.reverse(2, 3)
        restore(other, x(0), save(some(), x(0)))
        other.record(0, 2)
        other.reverse(0, 2)
        assert digest(other) == store_all(some(), 4)


def test_a_state_is_complete_before_the_functional_reads_it_and_one_array_has_none():
    model, fresh = (some(recompute=["d", "e"]) for _ in range(2))
    model.advance(0, 3)
    restore(fresh, x(3), save(model, x(3)))
    assert fresh.functional == model.functional
    fresh, key = some(recompute=["d", "e"]), Key(Kind.RESTART, 3, "a")
    restore(fresh, key, save(model, key))
    assert fresh.functional == 0


def test_no_step_is_taken_of_which_no_flow_is_known():
    names, steps = ("a", "b", "c", "d", "e", "f", "g", "h"), (SOME, AGAIN)
    code = Code(steps, names, ("b", "g", "d", "a", "c"), frozenset({"J"}))
    with pytest.raises(RunFailed, match=r"reached step 2.* 2 steps"):
        Coded(code).advance(0, 3)


def test_a_tape_that_is_not_held_is_missed_at_once():
    model = some()
    model.advance(0, 3)
    with pytest.raises(RunFailed, match="no tape of step 2") as failed:
        model.reverse(2, 3)
    assert failed.value.__notes__ == ["(adjoint of step 2)"]
    key = Key(Kind.TAPE, 2, "a+b+d")
    restore(model, key, save(model, key))
    model.record(3, 4)
    with pytest.raises(RunFailed, match="no tape of step 2"):
        model.reverse(2, 3)


def test_arrays_of_the_last_tape_that_is_left_can_be_written():
    model, key = some(), Key(Kind.TAPE, 0, "a")
    model.record(0, 1)
    first = save(model, key)
    restore(model, x(0), save(some(), x(0)))
    model.record(0, 2)
    model.reverse(1, 2)
    assert save(model, key) == first


@pytest.mark.parametrize(
    ("derived", "recompute", "message"),
    [
        (DERIVED, ["a"], r"a cannot be computed.*d, e"),
        (DERIVED, ["d", "k"], "k cannot be computed"),
        ({"d": ("a", "k")}, (), r"derived names \['k'\]"),
        ({"k": ("a",)}, (), r"derived names \['k'\]"),
        ({"d": ("e",), "e": ("d",)}, ["d", "e"], "leave one out"),
        ({"d": ("d",)}, ["d"], "leave one out"),
        ({"a": ("b",)}, ["a"], "a is a control"),
    ],
)
def test_what_cannot_be_computed_again_is_refused(derived, recompute, message):
    kind = type("Other", (Coded,), {"derived": derived})
    with pytest.raises(BadInput, match=message):
        kind(some().code, recompute=recompute)


def test_of_two_arrays_that_each_come_from_the_other_one_can_be_computed_again():
    either = type("Either", (Coded,), {"derived": {"d": ("a", "b"), "b": ("d", "a")}})
    assert "d" not in names_in(either(some().code, recompute=["d"]), x(0))


def test_a_flow_that_names_what_is_not_in_the_state_is_refused():
    idle = type("Idle", (ArrayModel,), {"step": None, "adjoint_step": None})
    with pytest.raises(BadInput, match="how large k is"):
        idle({"J": 0.0}, control={}, flow=Step(Flow(use={"k"})))


@pytest.mark.parametrize("recompute", ["zeta", "psi,k", "psi;zeta", 3])
def test_the_ocean_computes_nothing_again_but_psi(recompute):
    with pytest.raises(BadInput, match="recompute"):
        Vorticity(grid=8, recompute=recompute)


def test_an_array_that_derive_returns_and_does_not_write_is_noticed():
    class Lost(Coded):
        def derive(self, name, arrays):
            return arrays["a"] + arrays["b"]

    model = Lost(some().code, recompute=["d"])
    start = save(model, x(0))
    restore(model, x(0), start)
    with pytest.raises(RunFailed, match=r"Lost\.derive returned an array of shape"):
        model.advance(0, 1)


def test_the_gradient_of_the_ocean_is_the_same_where_psi_is_computed_again():
    plain, model = Vorticity(grid=16), Vorticity(grid=16, recompute="psi")
    field = plain._state["psi"].nbytes
    assert sizes_of(model)["restart"] == sizes_of(plain)["restart"] - field
    assert sizes_of(model)["tape"] == sizes_of(plain)["tape"] - field == field
    assert sizes_of(model)["adjoint"] == sizes_of(plain)["adjoint"]
    chain = chain_of(model, 7)
    platform = two_levels(chain, 1)
    levels = [Ram(capacity=level.capacity) for level in platform.levels]
    run(hrevolve(chain, platform), platform, model, levels)
    assert digest(model) == store_all(plain, 7)
