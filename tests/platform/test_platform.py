"""Platforms: what a level costs and holds, and two text forms that say what is wrong with them."""

import copy
import math
import pickle
import shutil
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ckio
from ckio.actions import Advance, Discard, Field, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput, CkioError, LevelFull, RankFailed, Stopped
from ckio.planners.dp import hrevolve
from ckio.planners.midpoint import Bisection
from ckio.planners.unknown import Online
from ckio.platform import Affine, Level, Platform, platform_of, size
from ckio.platform.chain import COSTS, Chain
from ckio.platform.profile import Profile
from ckio.platform.toml import loads_paper
from ckio.report import compare
from ckio.schedule import Schedule, counts
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate
from ckio.sim.ranks import Ranks
from ckio.sim.ranks.spread import Lognormal, Quantiles

MODEL = Chain(steps=None, advance=0.1, record=0.3, reverse=0.7, restart=5, tape=7, adjoint=11)
NODE = Platform(
    (
        Level(name="ram", capacity=2 << 30, write=Affine(per_byte=1e-10)),
        Level(
            name="nvme",
            capacity=100,
            write=Affine(1e-4, 5e-10),
            read=Affine(2e-4, 3e-10),
            read_cold=Affine(1e-3, 6e-10),
            discard=Affine(1e-5),
            backend="directory",
            options={"path": '/scratch/"ck"\n', "durability": "direct", "depth": 4, "sync": True},
            channel="pcie",
            ratio=0.75,
            note="zstd pays in time: 3 ms less",
        ),
        Level(name="archive", backend="hdf5"),
    ),
    working_memory=1 << 20,
    models={"vorticity grid=128": MODEL},
)


# --- values


def test_an_access_costs_its_latency_and_its_bytes() -> None:
    assert Affine(latency=0.5, per_byte=0.25)(6) == 2.0


def test_sizes_may_be_written_as_text() -> None:
    level = Level(name="ram", capacity="1.5MiB")  # type: ignore[arg-type]
    assert level == Level(name="ram", capacity=3 << 19)
    assert Platform((level,), "2GB").working_memory == 2 * 10**9  # type: ignore[arg-type]
    assert Platform.loads('[[level]]\nname = "ram"\ncapacity = "1.5MiB"').levels == (level,)


def test_a_platform_of_words_has_levels_with_usual_costs(tmp_path: Path) -> None:
    found = Platform.of(ram="1MiB", disk=f"{tmp_path}:1GB", archive=tmp_path / "a.h5")
    assert [level.backend for level in found.levels] == ["ram", "directory", "hdf5"]
    assert [level.capacity for level in found.levels][:2] == [1 << 20, 10**9]
    assert found.levels[2].capacity == pytest.approx(
        0.9 * shutil.disk_usage(tmp_path).free, rel=0.1
    )
    costs = [level.write(1 << 20) for level in found.levels]
    assert costs == sorted(costs)
    (memory,) = Platform.of().levels
    assert memory.name == "ram"
    assert memory.capacity
    (part,) = Platform.of(ranks=4).levels
    assert part.capacity == pytest.approx(memory.capacity / 4, rel=0.1)


def test_the_same_words_give_the_same_platform_in_a_process(tmp_path: Path) -> None:
    words: Any = {"ram": "1MiB", "disk": tmp_path}
    first = platform_of(None, **words)
    assert platform_of(None, **words) is first  # though what is free on the disk has changed
    assert platform_of(None, **words, ranks=2).levels[1].capacity < first.levels[1].capacity
    assert platform_of(None) is None


def test_a_platform_is_loaded_from_its_file(tmp_path: Path) -> None:
    platform = Platform.of(ram=100)
    (tmp_path / "node.toml").write_text(platform.dumps())
    assert Platform.load(tmp_path / "node.toml") == platform
    with pytest.raises(BadInput, match=r"none\.toml: No such file"):
        Platform.load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("entry", "make", "values"),
    [
        ("latency", Affine, [-1, math.nan, math.inf, "1", None, True]),
        ("per_byte", Affine, [-1, math.nan, math.inf, "1", None, True]),
        ("name", Level, ["", "two words", "a/b", "é", 3]),
        ("capacity", Level, [-1, 1.5, "8 GB of disk", True]),
        ("ratio", Level, [0, -0.5, math.nan, math.inf, 1001, 10**400, "1", None, True]),
        ("backend", Level, [None]),
        ("channel", Level, [b"pcie"]),
        ("write", Level, [3.0]),
        ("read", Level, [None]),
        ("read_only", Level, ["yes"]),
        ("options", Level, [3, [1], {1: "a"}, {"a": None}, {"a": [1]}, {"a": {"b": 1}}]),
        ("working_memory", Platform, [-1, 0.5, "half", False]),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_an_entry_that_makes_no_sense_is_refused_by_its_name(
    entry: str, make: Any, values: list[Any]
) -> None:
    others = {Affine: {}, Level: {"name": "ram"}, Platform: {"levels": ()}}[make]
    word = r"level 'ram': option" if entry == "options" else entry
    for value in values:
        with pytest.raises(BadInput, match=word):
            make(**others | {entry: value})


def test_what_could_steer_a_terminal_is_refused() -> None:
    for letter in "\x1b\x7f\x9b\n\u202e":
        for entry in ("channel", "note", "backend"):
            with pytest.raises(BadInput, match=f"level 'ram': {entry} = .* no control characters"):
                Level(name="ram", **{entry: f"a{letter}[2Jb"})
        with pytest.raises(BadInput, match="name of an option"):
            Level(name="ram", options={f"a{letter}": 1})
        with pytest.raises(BadInput, match="name of a model"):
            Platform((), models={f"a{letter}": MODEL})


@given(st.floats(0.001, 1000), st.lists(st.integers(0, 2**53)))
def test_columns_of_checkpoints_are_stored_as_each_of_them(ratio: float, sizes: list[int]) -> None:
    level = Level(name="ram", ratio=ratio)
    assert level.stored_of(np.array(sizes, np.int64)).tolist() == list(map(level.stored, sizes))


def test_a_stored_checkpoint_is_rounded_up_to_bytes() -> None:
    assert Level(name="ram", ratio=0.7).stored(3) == 3
    assert Level(name="ram", ratio=0.5).stored(3) == 2
    assert Level(name="ram").stored(2**62 + 1) == 2**62 + 1


def test_a_level_holds_its_capacity_in_slots() -> None:
    assert [Level(name="ram", capacity=20).slots(6, most) for most in (9, 2)] == [3, 2]
    assert Level(name="ram", capacity=20, ratio=0.5).slots(7, 9) == 5
    assert Level(name="ram").slots(6, 9) == 9
    assert Level(name="ram", capacity=0).slots(0, 9) == 9
    assert Level(name="ram", read_only=True).slots(8, 3) == 0


def test_the_working_memory_holds_some_steps_of_tape() -> None:
    chain = MODEL.with_steps(9)
    found = [Platform((), memory).tapes(chain) for memory in (None, 0, 6, 7, 20, 700)]
    assert found == [9, 0, 0, 1, 2, 9]
    # Where tapes differ, as many as fit whichever they are.
    chain = replace(MODEL, steps=5, tape=[1, 9, 1, 1, 1])
    sizes = (None, 0, 8, 9, 10, 11, 12, 13, 2**80)
    assert [Platform((), memory).tapes(chain) for memory in sizes] == [5, 0, 0, 1, 2, 3, 4, 5, 5]


def test_what_no_chain_can_fill_has_no_limit_also_in_a_file() -> None:
    huge = Platform((Level(name="ram", capacity=10**20),), working_memory=2**63)
    assert Platform.loads(huge.dumps()) == huge == Platform((Level(name="ram"),))
    most = Platform((Level(name="ram", capacity=2**63 - 1),), working_memory=2**63 - 1)
    assert Platform.loads(most.dumps()) == most != huge


def test_a_level_is_found_by_its_name_and_has_its_own_channel_unless_told() -> None:
    assert NODE.number("nvme") == 1
    with pytest.raises(BadInput, match=r"no level is named 'disk'.*ram, nvme, "):
        NODE.number("disk")
    assert [level.channel for level in NODE.levels] == ["ram", "pcie", "archive"]
    with pytest.raises(BadInput, match="two levels are named 'ram'"):
        Platform((Level(name="ram"), Level(name="ram", capacity=3)))


def test_platforms_do_not_change_with_what_they_were_made_of() -> None:
    options, models = {"path": "a"}, {"m": MODEL}
    level = Level(name="disk", options=options)
    platform = Platform((level,), models=models)
    options["path"], models["n"] = "b", MODEL
    assert dict(level.options) == {"path": "a"}
    assert list(platform.models) == ["m"]


# --- from process to process

CHAIN = MODEL.with_steps(9)
PLANNED = hrevolve(CHAIN, NODE)
OVERLAPPED = simulate(PLANNED, NODE, overlap=Overlap(1, None))
VARIED = Platform(
    (Level(name="ram", profile=Profile(first=Affine(2))),),
    models={"wave": MODEL, "heat": MODEL},
    overhead=0.25,
)
DIFFERING = replace(MODEL, steps=2, advance=[1, 2], restart=[1, 2, 3])
STEP = Step(Flow({"u"}, {"u"}), reverse=Flow({"v"}), restored={"u"})
VALUES = [
    *(Key(Kind.TAPE, 3, "u"), Write(Key(Kind.RESTART, 1), 1), Read(Key(Kind.RESTART, 1), 1)),
    *(Discard(Key(Kind.RESTART, 1), 0), Advance(0, 2), Record(2, 3), Reverse(2, 3)),
    *(Field("u", "<f8", (3, 4)), Flow({"u", "v"}, {"u"}, {"u"}), Affine(1e-4, 1e-9)),
    *(Lognormal(0.25), Quantiles((1.0, 1.5)), Overlap(1, None, 0.5), MODEL, CHAIN),
    *(STEP, Variables({"u": 8, "v": 8}, STEP, {"u"})),
    DIFFERING,
    *(NODE, *NODE.levels, VARIED, *VARIED.levels, VARIED.levels[0].profile),
    *(PLANNED, PLANNED.actions, counts(PLANNED)),
    *(OVERLAPPED, OVERLAPPED[0], OVERLAPPED.transfers, compare(OVERLAPPED, OVERLAPPED)),
    Ranks(count=4, shared={"nvme": 1e9}),
    *(Online(CHAIN, NODE), Bisection(CHAIN, NODE)),
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def test_all_values_that_are_exported_are_among_these() -> None:
    exported = {getattr(ckio, name) for name in ckio.__all__}
    frozen = {it for it in exported if isinstance(it, type) and is_dataclass(it)}
    frozen -= {ckio.Result}  # whose arrays are not compared
    assert {Schedule, Platform} < frozen
    assert {*frozen, Timeline} <= {type(value) for value in VALUES}


@pytest.mark.parametrize("way", WAYS)
def test_values_come_back_equal(way: str) -> None:
    for value in VALUES:
        back = WAYS[way](value)
        assert type(back) is type(value)
        assert back == value, type(value)
    back = WAYS[way](VARIED)
    assert hash(back) == hash(VARIED)
    assert back.digest() == VARIED.digest()
    actions, advance = WAYS[way](PLANNED.actions), WAYS[way](DIFFERING.advance)
    for column in (actions.op, actions.begin, actions.end, advance.values, advance.before):
        assert not column.flags.writeable


@pytest.mark.parametrize("way", WAYS)
def test_an_error_comes_back_with_what_it_says(way: str) -> None:
    error: CkioError
    for error in (
        RankFailed("rank 2: no wind", rank=2),
        Stopped("stopped", action=3, state=None, adjoint=9),
        LevelFull("no space"),
    ):
        error.shared = True
        back = WAYS[way](error)
        assert type(back) is type(error)
        assert (back.args, vars(back)) == (error.args, vars(error))


# --- TOML


def test_the_toml_form_comes_back_equal() -> None:
    for platform in (NODE, Platform(()), Platform((Level(name="old", read_only=True),))):
        assert Platform.loads(platform.dumps()) == platform


LETTERS = "aZ9 .-_\"'\\#=[]{},é€\U0001f30a"


def random_platform(random: Random) -> Platform:
    """Any platform at all: each entry given or not, names and texts of odd letters."""

    def price() -> Affine:
        return Affine(*(random.choice((0.0, 1e-300, random.uniform(0, 1e9))) for _ in range(2)))

    def perhaps(value: Any) -> Any:
        return random.choice((None, value))

    def text(letters: str = LETTERS) -> str:
        return "".join(random.choices(letters, k=random.randrange(5)))

    def profile() -> Profile:
        known = [f"{access}_{how}" for access in ("write", "read") for how in ("beside", "own")]
        drain = {"dirty": random.randrange(2**60), "drained": random.uniform(1e-3, 1e12)}
        return Profile(
            **{name: perhaps(price()) for name in ("first", *known)},
            **{f"{access}_hinders": price() for access in ("write", "read", "discard")},
            **random.choice((drain, {})),
            cached=perhaps(random.randrange(2**60)),
        )

    def level(number: int) -> Level:
        value = text(LETTERS + "\n\0\x7f"), random.randint(-9, 9), random.random() < 0.5
        return Level(
            name=f"{number}{random.choice(('', '_', '.', 'Aa-'))}",
            capacity=perhaps(random.randrange(2**60)),
            read_cold=perhaps(price()),
            **{access: price() for access in ("write", "read", "discard")},
            **{entry: text() for entry in ("backend", "channel", "note")},
            options={text(): random.choice(value) for _ in range(random.randrange(3))},
            ratio=random.uniform(0.001, 10),
            profile=perhaps(profile()),
        )

    return Platform(
        tuple(map(level, range(random.randrange(4)))),
        perhaps(random.randrange(2**60)),
        dict.fromkeys([*(text() for _ in range(random.randrange(3))), "other"], MODEL),
        random.uniform(0, 1e9),
    )


def test_any_platform_comes_back_equal_from_its_toml() -> None:
    for seed in range(60):
        platform = random_platform(Random(seed))
        again = Platform.loads(platform.dumps())
        assert again == platform, f"seed {seed}"
        assert again.digest() == platform.digest(), f"seed {seed}"


def test_the_digest_names_what_a_plan_depends_on() -> None:
    def digest(memory: int | None = 5, **level: Any) -> str:
        ram = Level(**{"name": "ram", "capacity": 7, "write": Affine(2)} | level)
        return Platform((ram,), memory).digest()

    base = Platform((Level(name="ram", capacity=7, write=Affine(2)),), 5)
    for alike in (
        digest(note="as it was in May"),
        digest(profile=Profile()),
        replace(base, models={"model": MODEL}).digest(),
    ):
        assert alike == base.digest()
    others = {
        digest(),
        digest(capacity=8),
        digest(write=Affine(3)),
        digest(write=Affine(), read=Affine(2)),
        digest(6),
        digest(None),
        digest(profile=Profile(first=Affine(1))),
    }
    assert len(others) == 7


def test_equal_platforms_have_equal_digests_whatever_numbers_they_were_given() -> None:
    plain = Platform((Level(name="ram", capacity=8, write=Affine(2.0)),), 5)
    numpys = Platform(
        (Level(name="ram", capacity=np.int64(8), write=Affine(np.float32(2)), ratio=np.int8(1)),),
        np.int32(5),
    )
    assert plain == numpys
    assert plain.dumps() == numpys.dumps()
    assert plain.digest() == numpys.digest()


def test_people_may_write_less_and_write_sizes_as_text() -> None:
    costs = dict.fromkeys(COSTS, "1") | {"restart": '"8 MiB"'}
    text = """
        working_memory = "1.5KiB"
        [[level]]
        name = "ram"
        capacity = "2 GB"
        write = 3
        read = { per_byte = 0.5 }
        [models.m]
    """ + "\n".join(f"{cost} = {value}" for cost, value in costs.items())
    level = Level(
        name="ram", capacity=2_000_000_000, write=Affine(latency=3), read=Affine(per_byte=0.5)
    )
    model = Chain(steps=None, **dict.fromkeys(COSTS, 1) | {"restart": 8 << 20})
    assert Platform.loads(text) == Platform((level,), working_memory=1536, models={"m": model})


def test_distributions_of_earlier_versions_are_ignored() -> None:
    now = LEVEL + "profile.cached = 3\n" + ALL_COSTS
    before = "drift = 'lognormal:1'\n" + now.replace(
        "profile.cached = 3\n", "profile.cached = 3\nprofile.spread.read = 'lognormal:1'\n"
    )
    assert Platform.loads(before + "advance_spread = 'lognormal:1'\n") == Platform.loads(now)


LEVEL = '[[level]]\nname = "ram"\n'
ALL_COSTS = "[models.m]\n" + "\n".join(f"{cost} = 1" for cost in COSTS) + "\n"
MALFORMED = [
    ("level = [", "not TOML: "),
    ("format = 1\nlevel = x", "not TOML: .*at line 2"),
    ("format = 2", "format = 2.*reads format 1"),
    ("quux = 2", "'quux' is not known here.*format, "),
    ("level = 3", r"levels are written as \[\[level\]\] tables"),
    ('[level]\nname = "ram"', r"levels are written as \[\[level\]\] tables"),
    ("working_memory = " + "9" * 5000, "not TOML: "),
    ('working_memory = "much"', "working_memory: 'much' is not a size"),
    ("x = " + "[" * 5000, "not TOML: "),
    (LEVEL + "[[level]]\ncapacity = 1", r"\[\[level\]\] number 1: `name` is missing"),
    ("[[level]]\nname = 3", "name = 3 is not text"),
    ('[[level]]\nname = "a b"', "level 'a b': a name is letters"),
    (LEVEL + "capacitty = 1", "'capacitty' .*did you mean capacity"),
    (LEVEL + "capacity = 2024-01-01", "capacity = .* is not a number of b"),
    (LEVEL + "capacity = 1.5", "capacity = 1.5 is not a number of bytes"),
    (LEVEL + "capacity = true", "capacity = True is not a number of bytes"),
    (LEVEL + 'capacity = "lots"', "capacity: 'lots' is not a size"),
    (LEVEL + "write = true", "level 'ram', write: True is neither a number of seconds"),
    (LEVEL + 'write = "2s"', "level 'ram', write: '2s' is neither a number of seconds"),
    (LEVEL + "write = nan", "level 'ram', write: latency .* = nan"),
    (LEVEL + "read_cold = {speed = 1}", "read_cold: 'speed' is not known here"),
    (LEVEL + 'ratio = "2:1"', "level 'ram': ratio = '2:1'"),
    (LEVEL + "backend = 3", "level 'ram': backend = 3 is not text"),
    (LEVEL + "options = 3", "level 'ram': options = 3 is not a table"),
    (LEVEL + "options = {a = 2024-01-01}", "option 'a' = .*options are text"),
    (LEVEL + "profile = 3", "level 'ram', profile: 3 is not a table"),
    (LEVEL + "profile.speed = 3", "profile: 'speed' is not known here"),
    (LEVEL + 'profile.first = "2s"', "profile, first: '2s' is neither a number of seconds"),
    (LEVEL + "profile.cached = nan", "profile: cached = nan"),
    (LEVEL + "profile.dirty = 3", "profile: dirty and drained must be given together"),
    (LEVEL + "profile = {dirty = 3, drained = 0.0}", "profile: drained = 0.0"),
    ("overhead = -1", r"overhead \(seconds\) = -1\.0"),
    ("overhead = 'much'", r"overhead \(seconds\) = 'much'"),
    ("models = 3", r"model costs are written as \[models.NAME\]"),
    ("[models]\nm = 3", r"model costs are written as \[models.NAME\]"),
    ("[models.m]\nadvance = 1", "models.m: record, reverse, .* missing"),
    ("[models.m]\nsteps = 1", "models.m: 'steps' is not known here"),
    (ALL_COSTS + "handed = [[1]]", r"models.m: handed = \[\[1\]\]; it is a list of"),
    ("[models.m]\ntape_spread = 'lognormal:1'", "'tape_spread' is not known"),
    (ALL_COSTS.replace("advance = 1", "advance = nan"), r"models\.m: advance = nan"),
    (ALL_COSTS.replace("record = 1", "record = inf"), r"models\.m: record = inf"),
    (ALL_COSTS.replace("tape = 1", "tape = -1"), r"models\.m: tape = -1"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED, ids=[told for _, told in MALFORMED])
def test_malformed_toml_is_refused_with_the_file_and_the_entry(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=rf"^node\.toml(, line \d+)?: .*{message}"):
        Platform.loads(text, source="node.toml")


# --- the text form of Herrmann & Pallez (2020)


def test_a_first_line_of_a_bare_number_makes_it_the_form_of_the_paper() -> None:
    platform = Platform(
        (
            Level(name="level0", capacity=3, write=Affine(0.5), read=Affine(1)),
            Level(name="level1", capacity=7, write=Affine(10), read=Affine(4)),
        ),
        working_memory=1,
    )
    assert Platform.loads("# a comment\n\n 2 # levels\n3 0.5 1\n\n7 10 4 # the disk\n") == platform
    assert Platform.loads("\t2 \r\n\r\n3\t0.5\t1\r\n 7 10.0 4e0 # far\r\n") == platform
    assert Platform.loads("0") == Platform((), working_memory=1)


PAPER = [
    ("# only this\n", ": empty.*number of levels"),
    ("a\n1 2 3", ", line 1: 'a' is not the number of levels"),
    ("\n-1\n", ", line 2: '-1' is not the number of levels"),
    ("9" * 5000, ", line 1: '9{80}' is not the number of levels"),
    ("2\n1 0 0\n", ", line 2: 2 levels announced, 1 lines"),
    ("1\n1 0 0\n\n2 0 0", ", line 4: 1 levels announced, 2 lines"),
    ("2\n", ", line 1: 2 levels announced, 0 lines"),
    ("1\n# c\n1 0", ", line 3: '1 0' is not `slots write read`"),
    ("1\n1 0 0 0", ", line 2: '1 0 0 0' is not `slots write read`"),
    ("1\n1 free 0", ", line 2: '1 free 0' is not `slots write read`"),
    ("1\n1.5 0 0", ", line 2: '1.5' is not a number of slots"),
    ("1\n-1 0 0", ", line 2: '-1' is not a number of slots"),
    ("1\n" + "9" * 5000 + " 0 0", ", line 2: '9{80}' is not a number of slots"),
    ("2\n1 0 0\n1 0 -2", r", line 3: Affine: latency .* = -2"),
    ("1\n1 nan 0", r", line 2: Affine: latency .* = nan"),
    ("1\n1 0 inf", r", line 2: Affine: latency .* = inf"),
]


@pytest.mark.parametrize(("text", "message"), PAPER, ids=[told for _, told in PAPER])
def test_a_malformed_text_platform_is_refused_with_the_file_and_the_line(
    text: str, message: str
) -> None:
    with pytest.raises(BadInput, match=f"^arch.txt{message}"):
        loads_paper(text, source="arch.txt")


# --- sizes

SIZES = {
    "4096": 4096,
    "17B": 17,
    "64MiB": 64 << 20,
    "2GB": 2 * 10**9,
    " 3 kB ": 3000,
    "3KB": 3000,
    "1.5GiB": 3 << 29,
    "0.5 TB": 5 * 10**11,
    "8PiB": 8 << 50,
    "0": 0,
    "1.1kB": 1100,
    "1.1KiB": 1126,
    "9007199254740993.0kB": 9007199254740993000,
    "64 mib": 64 << 20,
    "8mb": 8 * 10**6,
    "2G": 2 << 30,
    "8m": 8 << 20,
    "3k": 3072,
    "8e6": 8 * 10**6,
    "8E+6": 8 * 10**6,
    "1.5e3": 1500,
    "1e3 MB": 10**9,
}
NO_SIZES = [
    *("", "MiB", "-1", "1e", "8x", "8 mbit", "1,5GB", "nan", "inf", "1 GB each"),
    *("1.5", "1.5B", "1.", ".5GB", "1_000", "٣", "9" * 5000, "1e-3", "1.5e0", "1e999"),
]


def test_sizes_are_bytes_with_decimal_or_binary_units() -> None:
    assert {text: size(text) for text in SIZES} == SIZES
    for text in NO_SIZES:
        with pytest.raises(BadInput, match="is not a size; write bytes or"):
            size(text)
