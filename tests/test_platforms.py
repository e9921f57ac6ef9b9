"""Platforms: what a level costs and holds, and two text forms that say what is wrong with them."""

import copy
import math
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import is_dataclass
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ckio
from ckio.actions import Advance, Discard, Field, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput, CkioError, LevelFull, RankFailed, Stopped
from ckio.planners.bisection import Bisection
from ckio.planners.dp import hrevolve
from ckio.planners.online import Online
from ckio.platform import Affine, Level, Platform, size
from ckio.platform.chain import COSTS, SECONDS, Chain
from ckio.platform.profile import ACCESSES, Lognormal, Profile, Quantiles, Spread
from ckio.report import compare
from ckio.schedule import Schedule, counts
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Event, Timeline
from ckio.sim.engine import simulate
from ckio.sim.ranks import Ranks, Shared

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


@pytest.mark.parametrize("part", ["latency", "per_byte"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", None, True])
def test_an_access_takes_finite_seconds(part: str, value: object) -> None:
    with pytest.raises(BadInput, match=rf"Affine: {part} \(.*\) = "):
        Affine(**{part: value})


@pytest.mark.parametrize("name", ["", "two words", "a/b", "é"])
def test_the_name_of_a_level_is_a_plain_word(name: str) -> None:
    with pytest.raises(BadInput, match="a name is letters, digits"):
        Level(name=name)


@pytest.mark.parametrize("capacity", [-1, 1.5, "8", True])
def test_a_capacity_is_whole_bytes(capacity: object) -> None:
    with pytest.raises(BadInput, match=r"level 'ram': capacity = .* whole number of bytes"):
        Level(name="ram", capacity=capacity)  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [0, -0.5, math.nan, math.inf, 1001, 10**400, "1", None, True])
def test_a_ratio_is_a_number_above_0_and_no_larger_than_any_codec_makes_it(ratio: float) -> None:
    with pytest.raises(BadInput, match="level 'ram': ratio = "):
        Level(name="ram", ratio=ratio)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("name", 3), ("backend", None), ("channel", b"pcie"), ("write", 3.0), ("read", None)],
)
def test_an_entry_of_another_type_is_refused(entry: str, value: object) -> None:
    with pytest.raises(BadInput, match=rf"level .*: {entry} = .* is not (text|an Affine)"):
        Level(**{"name": "ram", entry: value})


@pytest.mark.parametrize("options", [3, [1], {1: "a"}, {"a": None}, {"a": [1]}, {"a": {"b": 1}}])
def test_options_are_text_numbers_and_truths(options: Any) -> None:
    with pytest.raises(
        BadInput, match=r"level 'ram': option.* is not a table|options are text, num"
    ):
        Level(name="ram", options=options)


@given(st.floats(0.001, 1000), st.lists(st.integers(0, 2**53)))
def test_columns_of_checkpoints_are_stored_as_each_of_them(ratio: float, sizes: list[int]) -> None:
    level = Level(name="ram", ratio=ratio)
    assert level.stored_of(np.array(sizes, np.int64)).tolist() == list(map(level.stored, sizes))


@pytest.mark.parametrize("room", [-1, 0.5, "8", False])
def test_working_memory_is_whole_bytes(room: object) -> None:
    with pytest.raises(BadInput, match=r"working_memory = .* whole number of bytes"):
        Platform((), working_memory=room)  # type: ignore[arg-type]


def test_two_levels_may_not_share_a_name() -> None:
    with pytest.raises(BadInput, match="two levels are named 'ram'"):
        Platform((Level(name="ram"), Level(name="ram", capacity=3)))


def test_a_level_holds_its_capacity_in_slots() -> None:
    assert [Level(name="ram", capacity=20).slots(6, most) for most in (9, 2)] == [3, 2]
    assert Level(name="ram", capacity=20, ratio=0.5).slots(7, 9) == 5
    assert Level(name="ram").slots(6, 9) == 9
    assert Level(name="ram", capacity=0).slots(0, 9) == 9


def test_a_read_only_level_has_room_for_nothing_and_its_file_says_so() -> None:
    platform = Platform((Level(name="old", read_only=True), Level(name="new")))
    assert [level.slots(8, 3) for level in platform.levels] == [0, 3]
    assert Platform.loads(platform.dumps()) == platform
    with pytest.raises(BadInput, match="read_only = 'yes' is neither true nor false"):
        Level(name="old", read_only="yes")  # type: ignore[arg-type]


def test_a_stored_checkpoint_is_rounded_up_to_bytes() -> None:
    assert Level(name="ram", ratio=0.7).stored(3) == 3
    assert Level(name="ram", ratio=0.5).stored(3) == 2
    assert Level(name="ram").stored(2**62 + 1) == 2**62 + 1


def test_the_working_memory_holds_some_steps_of_tape() -> None:
    chain = MODEL.with_steps(9)
    assert [Platform((), room).tapes(chain) for room in (None, 0, 6, 7, 20, 700)] == [
        9,
        0,
        0,
        1,
        2,
        9,
    ]


def test_where_tapes_differ_as_many_fit_as_do_whichever_they_are() -> None:
    chain = Chain(
        steps=5, advance=1, record=1, reverse=1, restart=1, tape=[1, 9, 1, 1, 1], adjoint=1
    )
    rooms = (None, 0, 8, 9, 10, 11, 12, 13, 2**80)
    assert [Platform((), room).tapes(chain) for room in rooms] == [5, 0, 0, 1, 2, 3, 4, 5, 5]


def test_a_level_is_found_by_its_name() -> None:
    assert NODE.number("nvme") == 1
    with pytest.raises(BadInput, match="no level is named 'disk'; this platform has: ram, nvme, "):
        NODE.number("disk")


def test_a_level_has_its_own_channel_unless_told() -> None:
    assert [level.channel for level in NODE.levels] == ["ram", "pcie", "archive"]


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
    (Level(name="ram", profile=Profile(first=Affine(2), spread={"read": Lognormal(0.5)})),),
    models={"wave": MODEL, "heat": MODEL},
    spreads={"wave": {"advance": Quantiles((1.0, 2.0))}, "heat": {}},
    drift=Lognormal(0.1),
    overhead=0.25,
)
STEP = Step(Flow({"u"}, {"u"}), reverse=Flow({"v"}), restored={"u"})
VALUES = [
    *(Key(Kind.TAPE, 3, "u"), Write(Key(Kind.RESTART, 1), 1), Read(Key(Kind.RESTART, 1), 1)),
    *(Discard(Key(Kind.RESTART, 1), 0), Advance(0, 2), Record(2, 3), Reverse(2, 3)),
    *(Field("u", "<f8", (3, 4)), Flow({"u", "v"}, {"u"}, {"u"}), Affine(1e-4, 1e-9)),
    *(Lognormal(0.25), Quantiles((1.0, 1.5)), Overlap(1, None, 0.5), MODEL, CHAIN),
    *(STEP, Variables({"u": 8, "v": 8}, STEP, {"u"})),
    Chain(steps=2, advance=[1, 2], record=1, reverse=1, restart=[1, 2], tape=1, adjoint=1),
    *(NODE, *NODE.levels, VARIED, *VARIED.levels, VARIED.levels[0].profile),
    *(PLANNED, PLANNED.actions, counts(PLANNED)),
    *(OVERLAPPED, OVERLAPPED[0], OVERLAPPED.transfers, compare(OVERLAPPED, OVERLAPPED)),
    Ranks(count=4, shared={"nvme": Shared(bandwidth=1e9)}),
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
    assert {Schedule, Platform, Event} < frozen
    assert {*frozen, Timeline} <= {type(value) for value in [*VALUES, OVERLAPPED[0]]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_equal(value: Any, way: str) -> None:
    back = WAYS[way](value)
    assert type(back) is type(value)
    assert back == value


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_back_of_a_platform_does_not_change_either(way: str) -> None:
    back = WAYS[way](VARIED)
    level = WAYS[way](NODE.levels[1])
    fixed = [back.models, back.spreads, back.spreads["wave"], back.levels[0].profile.spread]
    for mapping in (*fixed, level.options):
        assert isinstance(mapping, MappingProxyType)
    assert hash(back) == hash(VARIED)
    assert back.digest() == VARIED.digest()
    assert level.options == NODE.levels[1].options


@pytest.mark.parametrize("way", WAYS)
def test_columns_that_come_back_cannot_be_written_to_either(way: str) -> None:
    varying = Chain(steps=2, advance=[1, 2], record=1, reverse=1, restart=1, tape=1, adjoint=1)
    actions, advance = WAYS[way](PLANNED.actions), WAYS[way](varying.advance)
    for column in (actions.op, actions.begin, actions.end, advance.values, advance.before):
        assert not column.flags.writeable


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [
        RankFailed("rank 2: no wind", rank=2),
        Stopped("stopped", action=3, state=None, adjoint=9),
        LevelFull("no room"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_with_what_it_says(error: CkioError, way: str) -> None:
    error.shared = True
    back = WAYS[way](error)
    assert type(back) is type(error)
    assert (back.args, vars(back)) == (error.args, vars(error))


def test_a_place_that_no_platform_file_could_name_is_refused() -> None:
    place = os.fsdecode(b"/scratch/\xff")
    with pytest.raises(BadInput, match="is no text in UTF-8, as platform files are; name a link"):
        Level(name="nvme", backend="directory", options={"path": place})


def test_what_was_changed_on_its_way_is_refused() -> None:
    sent = pickle.dumps(Level(name="ram", capacity=1234567))
    with pytest.raises(BadInput, match="capacity = -1234567"):
        pickle.loads(
            sent.replace(
                (1234567).to_bytes(4, "little"), (-1234567 & 2**32 - 1).to_bytes(4, "little")
            )
        )


def test_another_process_plans_the_same() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(hrevolve, CHAIN, NODE).result() == PLANNED


# --- TOML


def test_the_toml_form_comes_back_equal() -> None:
    assert Platform.loads(NODE.dumps()) == NODE
    assert Platform.loads(Platform(()).dumps()) == Platform(())


PRICES = st.builds(Affine, st.floats(0, 1e9), st.floats(0, 1e9))
LINES = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]),
    max_size=4,
)
OPTIONS = st.dictionaries(LINES, st.one_of(st.text(max_size=4), st.integers(-9, 9), st.booleans()))
FACTORS: st.SearchStrategy[Spread] = st.builds(Lognormal, st.floats(0, 10)) | st.lists(
    st.floats(0.1, 10), min_size=1, max_size=4
).map(lambda factors: Quantiles(tuple(sorted(factors))))
DRAINS = st.tuples(st.integers(0, 2**60), st.floats(1e-3, 1e12)) | st.just((None, None))
PROFILES = st.builds(
    lambda drain, **known: Profile(dirty=drain[0], drained=drain[1], **known),
    DRAINS,
    first=st.none() | PRICES,
    write_beside=st.none() | PRICES,
    read_beside=st.none() | PRICES,
    write_own=st.none() | PRICES,
    read_own=st.none() | PRICES,
    write_hinders=PRICES,
    read_hinders=PRICES,
    discard_hinders=PRICES,
    cached=st.none() | st.integers(0, 2**60),
    spread=st.dictionaries(st.sampled_from(ACCESSES), FACTORS),
)
LEVELS = st.builds(
    Level,
    name=st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True),
    capacity=st.none() | st.integers(0, 2**60),
    write=PRICES,
    read=PRICES,
    read_cold=st.none() | PRICES,
    discard=PRICES,
    backend=LINES,
    options=OPTIONS,
    channel=LINES,
    ratio=st.floats(0.001, 10),
    note=LINES,
    profile=st.none() | PROFILES,
)


@given(
    st.lists(LEVELS, max_size=3, unique_by=lambda level: level.name),
    st.none() | st.integers(0, 2**60),
    st.dictionaries(LINES, st.dictionaries(st.sampled_from(SECONDS), FACTORS, min_size=1)),
    st.none() | FACTORS,
    st.floats(0, 1e9),
)
def test_any_platform_comes_back_equal_from_its_toml(
    levels: list[Level],
    room: int | None,
    spreads: dict[str, dict[str, Spread]],
    drift: Spread | None,
    overhead: float,
) -> None:
    models = dict.fromkeys([*spreads, "other"], MODEL)
    platform = Platform(tuple(levels), room, models, spreads, drift, overhead)
    again = Platform.loads(platform.dumps())
    assert again == platform
    assert again.digest() == platform.digest()


def test_the_digest_names_what_a_plan_depends_on() -> None:
    base = Platform((Level(name="ram", capacity=7, write=Affine(2)),), 5)
    others = [
        Platform((Level(name="ram", capacity=8, write=Affine(2)),), 5),
        Platform((Level(name="ram", capacity=7, write=Affine(3)),), 5),
        Platform((Level(name="ram", capacity=7, read=Affine(2)),), 5),
        Platform((Level(name="ram", capacity=7, write=Affine(2)),), 6),
        Platform((Level(name="ram", capacity=7, write=Affine(2)),)),
    ]
    assert len({platform.digest() for platform in (base, *others)}) == 6
    assert base.digest() == Platform(base.levels, 5, {"model": MODEL}).digest()
    noted = Level(name="ram", capacity=7, write=Affine(2), note="as it was in May")
    assert base.digest() == Platform((noted,), 5).digest()


def test_the_digest_knows_a_profile_but_not_what_varies_by_chance() -> None:
    def digest(profile: Profile | None = None, drift: Quantiles | None = None) -> str:
        return Platform((Level(name="ram", profile=profile),), drift=drift).digest()

    varies = Quantiles((0.9, 1.1))
    assert digest() == digest(Profile()) == digest(Profile(spread={"read": varies}), varies)
    assert digest() != digest(Profile(first=Affine(1)))


def test_equal_platforms_have_equal_digests_whatever_numbers_they_were_given() -> None:
    plain = Platform((Level(name="ram", capacity=8, write=Affine(2.0)),), 5)
    numpys = Platform(
        (Level(name="ram", capacity=np.int64(8), write=Affine(np.float32(2)), ratio=np.int8(1)),),
        np.int32(5),
    )
    assert plain == numpys
    assert plain.dumps() == numpys.dumps()
    assert plain.digest() == numpys.digest()


def test_sizes_of_a_model_may_be_written_as_text() -> None:
    costs = dict.fromkeys(COSTS, "1") | {"restart": '"8 MiB"'}
    text = "[models.m]\n" + "\n".join(f"{cost} = {value}" for cost, value in costs.items())
    assert Platform.loads(text).models["m"].restart == 8 << 20


def test_people_may_write_less_and_write_sizes_as_text() -> None:
    text = """
        working_memory = "1.5KiB"
        [[level]]
        name = "ram"
        capacity = "2 GB"
        write = 3
        read = { per_byte = 0.5 }
    """
    level = Level(
        name="ram", capacity=2_000_000_000, write=Affine(latency=3), read=Affine(per_byte=0.5)
    )
    assert Platform.loads(text) == Platform((level,), working_memory=1536)


LEVEL = '[[level]]\nname = "ram"\n'
MALFORMED = {
    "no TOML": ("level = [", "not TOML: "),
    "a newer form": ("format = 2", r"format = 2; this ckio reads format 1"),
    "an unknown entry": (
        "quux = 2",
        r"the file: 'quux' is not known here; known: drift, format, ",
    ),
    "a level that is no table": ("level = 3", r"levels are written as \[\[level\]\] tables"),
    "one [level]": ('[level]\nname = "ram"', r"levels are written as \[\[level\]\] tables"),
    "models that are no table": ("models = 3", r"model costs are written as \[models.NAME\]"),
    "a model that is no table": ("[models]\nm = 3", r"model costs are written as \[models.NAME\]"),
    "no name": (LEVEL + "[[level]]\ncapacity = 1", r"\[\[level\]\] number 1: `name` is missing"),
    "a name that is no text": ("[[level]]\nname = 3", "level 3: name = 3 is not text"),
    "a slip of the pen": (LEVEL + "capacitty = 1", "'capacitty' .*; did you mean capacity[?]"),
    "a number without end": ("working_memory = " + "9" * 5000, "not TOML: "),
    "tables without end": ("x = " + "[" * 5000, "not TOML: "),
    "a truth as version": ("format = true", "format = True; this ckio reads format 1"),
    "a date as capacity": (LEVEL + "capacity = 2024-01-01", "capacity = .* is not a number of b"),
    "a truth as seconds": (LEVEL + "write = true", "level 'ram', write: True is not seconds"),
    "a truth as ratio": (LEVEL + "ratio = true", "level 'ram': ratio = True; it must be a number"),
    "an option in a table": (LEVEL + "options = {a = {b = 1}}", "option 'a' = {'b': 1}; options"),
    "an option by date": (
        LEVEL + "options = {a = 2024-01-01}",
        "option 'a' = .*; options are text",
    ),
    "an odd name": ('[[level]]\nname = "a b"', "level 'a b': a name is letters"),
    "one name twice": (LEVEL + LEVEL, "two levels are named 'ram'"),
    "an unknown entry of a level": (LEVEL + "speed = 3", "level 'ram': 'speed' is not known here"),
    "a capacity in words": (LEVEL + 'capacity = "lots"', "capacity: 'lots' is not a size"),
    "a fraction of bytes": (LEVEL + "capacity = 1.5", "capacity = 1.5 is not a number of bytes"),
    "a negative capacity": (LEVEL + "capacity = -1", "level 'ram': capacity = -1"),
    "a truth as capacity": (LEVEL + "capacity = true", "capacity = True is not a number of bytes"),
    "NaN seconds": (LEVEL + "write = nan", "level 'ram', write: latency .* = nan"),
    "infinite seconds": (LEVEL + "read = {per_byte = inf}", "level 'ram', read: per_byte .* = inf"),
    "negative seconds": (LEVEL + "discard = -1", "level 'ram', discard: latency .* = -1"),
    "seconds in words": (LEVEL + 'write = "2s"', "level 'ram', write: '2s' is not seconds"),
    "latency in words": (LEVEL + 'write = {latency = "2"}', "level 'ram', write: latency .* = '2'"),
    "an unknown part": (LEVEL + "read_cold = {speed = 1}", "read_cold: 'speed' is not known here"),
    "a ratio in words": (LEVEL + 'ratio = "2:1"', "level 'ram': ratio = '2:1'; it must be a num"),
    "a ratio of NaN": (LEVEL + "ratio = nan", "level 'ram': ratio = nan"),
    "a backend by number": (LEVEL + "backend = 3", "level 'ram': backend = 3 is not text"),
    "a channel by number": (LEVEL + "channel = 3", "level 'ram': channel = 3 is not text"),
    "a note by number": (LEVEL + "note = 3", "level 'ram': note = 3 is not text"),
    "a profile that is no table": (LEVEL + "profile = 3", "level 'ram', profile: 3 is not a table"),
    "an unknown part of one": (LEVEL + "profile.speed = 3", "profile: 'speed' is not known here"),
    "a price in words": (LEVEL + 'profile.first = "2s"', "profile, first: '2s' is not seconds"),
    "a cache of NaN": (
        LEVEL + "profile.cached = nan",
        "profile: cached = nan is not a num",
    ),
    "a half of two": (LEVEL + "profile.dirty = 3", "profile: dirty and drained are given together"),
    "no drain": (LEVEL + "profile = {dirty = 3, drained = 0.0}", "profile: drained = 0.0; it must"),
    "an unknown spread": (
        LEVEL + "profile.spread.size = 'lognormal:1'",
        "profile: spread 'size' = .*",
    ),
    "falling factors": (
        LEVEL + "profile.spread.read = 'quantiles:2,1'",
        r"spread\.read: Quantiles: factors = ",
    ),
    "a negative overhead": ("overhead = -1", r"platform: overhead \(seconds\) = -1\.0"),
    "an overhead in words": ("overhead = 'much'", r"overhead \(seconds\) = 'much'; it must be a n"),
    "a number as factors": ("drift = 3", "drift: '3' is not lognormal:SIGMA or"),
    "a spread in other words": (
        "[models.m]\nrecord_spread = 3\n" + "\n".join(f"{cost} = 1" for cost in COSTS),
        r"models\.m\.record_spread: '3' is not lognormal:SIGMA or",
    ),
    "a spread of bytes": ("[models.m]\ntape_spread = 'lognormal:1'", "'tape_spread' is not known"),
    "options that are no table": (LEVEL + "options = 3", "level 'ram': options = 3 is not a table"),
    "working memory in words": ('working_memory = "much"', "working_memory: 'much' is not a size"),
    "negative working memory": ("working_memory = -1", "working_memory = -1"),
    "a model without costs": ("[models.m]\nadvance = 1", "models.m: record, reverse, .* missing"),
    "a model with steps": ("[models.m]\nsteps = 1", "models.m: 'steps' is not known here"),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_toml_is_refused_with_the_file_and_the_entry(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=rf"^node\.toml: .*{message}"):
        Platform.loads(text, source="node.toml")


@pytest.mark.parametrize(("name", "value"), [("advance", "nan"), ("tape", "-1"), ("record", "inf")])
def test_a_bad_cost_of_a_model_is_refused_with_its_name(name: str, value: str) -> None:
    costs = {**dict.fromkeys(COSTS, "1"), name: value}
    text = "[models.m]\n" + "\n".join(f"{cost} = {number}" for cost, number in costs.items())
    with pytest.raises(BadInput, match=rf"^node\.toml: models\.m: {name} = {value}"):
        Platform.loads(text, source="node.toml")


# --- the text form of paper 004


def test_a_first_line_of_a_bare_number_makes_it_the_form_of_paper_004() -> None:
    platform = Platform.loads("# a comment\n\n 2 # levels\n3 0.5 1\n\n7 10 4 # the disk\n")
    assert platform == Platform(
        (
            Level(name="level0", capacity=3, write=Affine(0.5), read=Affine(1)),
            Level(name="level1", capacity=7, write=Affine(10), read=Affine(4)),
        ),
        working_memory=1,
    )


def test_the_form_of_paper_004_may_have_tabs_and_lines_of_any_system() -> None:
    plain = Platform.loads("2\n3 0.5 1\n7 10 4\n")
    assert Platform.loads("\t2 \r\n\r\n3\t0.5\t1\r\n 7 10.0 4e0 # far\r\n") == plain


def test_the_form_of_paper_004_may_say_that_there_is_no_level() -> None:
    assert Platform.loads("0") == Platform((), working_memory=1)


PAPER = {
    "nothing": ("# only this\n", ": empty; the first line must be the number of levels"),
    "no count": ("a\n1 2 3", ", line 1: 'a' is not the number of levels"),
    "a negative count": ("\n-1\n", ", line 2: '-1' is not the number of levels"),
    "too few levels": ("2\n1 0 0\n", ", line 2: 2 levels announced, 1 lines"),
    "too many levels": ("1\n1 0 0\n\n2 0 0", ", line 4: 1 levels announced, 2 lines"),
    "no levels": ("2\n", ", line 1: 2 levels announced, 0 lines"),
    "two numbers": ("1\n# c\n1 0", ", line 3: '1 0' is not `slots write read`"),
    "four numbers": ("1\n1 0 0 0", ", line 2: '1 0 0 0' is not `slots write read`"),
    "a word": ("1\n1 free 0", ", line 2: '1 free 0' is not `slots write read`"),
    "half a slot": ("1\n1.5 0 0", ", line 2: '1.5' is not a number of slots"),
    "negative slots": ("1\n-1 0 0", ", line 2: '-1' is not a number of slots"),
    "slots without end": (
        "1\n" + "9" * 5000 + " 0 0",
        ", line 2: '9{80}' is not a number of slots",
    ),
    "levels without end": ("9" * 5000, ", line 1: '9{80}' is not the number of levels"),
    "a negative cost": ("2\n1 0 0\n1 0 -2", r", line 3: Affine: latency .* = -2"),
    "a cost of NaN": ("1\n1 nan 0", r", line 2: Affine: latency .* = nan"),
    "an infinite cost": ("1\n1 0 inf", r", line 2: Affine: latency .* = inf"),
}


@pytest.mark.parametrize(("text", "message"), PAPER.values(), ids=PAPER.keys())
def test_a_malformed_text_platform_is_refused_with_the_file_and_the_line(
    text: str, message: str
) -> None:
    with pytest.raises(BadInput, match=f"^arch.txt{message}"):
        Platform.from_hrevolve(text, source="arch.txt")


# --- sizes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        ("17B", 17),
        ("64MiB", 64 << 20),
        ("2GB", 2 * 10**9),
        (" 3 kB ", 3000),
        ("3KB", 3000),
        ("1.5GiB", 3 << 29),
        ("0.5 TB", 5 * 10**11),
        ("8PiB", 8 << 50),
        ("0", 0),
        ("1.1kB", 1100),
        ("1.1KiB", 1126),
        ("9007199254740993.0kB", 9007199254740993000),
        ("64 mib", 64 << 20),
        ("8mb", 8 * 10**6),
        ("2G", 2 << 30),
        ("8m", 8 << 20),
        ("3k", 3072),
        ("8e6", 8 * 10**6),
        ("8E+6", 8 * 10**6),
        ("1.5e3", 1500),
        ("1e3 MB", 10**9),
    ],
)
def test_sizes_are_bytes_with_decimal_or_binary_units(text: str, nbytes: int) -> None:
    assert size(text) == nbytes


@pytest.mark.parametrize(
    "text",
    [
        *("", "MiB", "-1", "1e", "8x", "8 mbit", "1,5GB", "nan", "inf", "1 GB each"),
        *("1.5", "1.5B", "1.", ".5GB", "1_000", "٣", "9" * 5000, "1e-3", "1.5e0", "1e999"),
    ],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a size; write bytes or"):
        size(text)


@pytest.mark.parametrize("entry", ["channel", "note", "backend"])
@pytest.mark.parametrize("letter", ["\x1b", "\x7f", "\x9b", "\n", "\u202e"])
def test_what_could_steer_a_terminal_is_refused(entry: str, letter: str) -> None:
    with pytest.raises(BadInput, match=f"level 'ram': {entry} = .* no control characters"):
        Level(name="ram", **{entry: f"a{letter}[2Jb"})
    with pytest.raises(BadInput, match="name of an option"):
        Level(name="ram", options={f"a{letter}": 1})
    chain = Chain(steps=None, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    with pytest.raises(BadInput, match="name of a model"):
        Platform((), models={f"a{letter}": chain})
