"""Many ranks on the command line: what is said of them, in words and in JSON."""

from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint

from ckio.planners.dp import hrevolve
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan
from ckio.schedule.policy import Overlap
from ckio.schedule.text import dumps
from ckio.sim.engine import simulate
from ckio.sim.ranks import Barrier, Ranks
from ckio.sim.ranks.sharing import simulate_ranks
from ckio.sim.ranks.spread import Lognormal, Quantiles

PLATFORM = Platform.loads("""
format = 1
working_memory = "1MiB"
[[level]]
name = "ram"
capacity = "3MiB"
backend = "ram"
[[level]]
name = "archive"
backend = "hdf5"
write = {latency = 0.5, per_byte = 2e-6}
read = {latency = 0.25, per_byte = 1e-6}
""")
CHAIN = Chain(
    steps=24, advance=1, record=1, reverse=2, restart=1 << 20, tape=1 << 20, adjoint=1 << 20
)
SCHEDULE = hrevolve(CHAIN, PLATFORM)
SHARED = ("--shared", "archive=2MB")
BEHIND = ("--overlap", "write_behind=1,read_ahead=1")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "plan.txt").write_text(dumps(SCHEDULE, PLATFORM))
    return tmp_path


def ranks(place: Path, *words: object) -> dict[str, Any]:
    return answer("simulate", "plan.txt", "--ranks", *words, at=place)


def test_ranks_that_share_take_longer(place: Path) -> None:
    found = ranks(place, 8, *SHARED)
    expected = simulate_ranks(SCHEDULE, PLATFORM, Ranks(count=8, shared={"archive": 2e6}))
    assert (found["ranks"], found["steps"], found["actions"]) == (8, 24, len(SCHEDULE))
    assert found["makespan"] == expected.makespan > found["alone"] == makespan(SCHEDULE, PLATFORM)
    archive, use = found["channels"]["archive"], expected.channels["archive"]
    assert archive["busy"] == use.busy
    assert archive["achieved"] == use.achieved == pytest.approx(2e6)
    assert (archive["bandwidth"], archive["bytes"], archive["most"]) == (2e6, use.nbytes, 8)
    alone = ranks(place, 8, "--shared", "archive=1TB/s")["channels"]["archive"]
    assert alone["slowed"] == {"least": 0, "median": 0, "most": 0}
    assert archive["slowed"]["least"] == archive["slowed"]["most"] == use.slowed[0] > 0
    assert found["waited"] == {"least": 0, "median": 0, "most": 0}


def test_all_that_is_said_of_ranks_is_heard(place: Path) -> None:
    words = "5,spread=lognormal:0.2,jitter=quantiles:1,1,3,seed=4,barrier=step"
    found = ranks(place, words, "--shared", "archive=1MB")
    expected = Ranks(
        count=5,
        shared={"archive": 1e6},
        spread=Lognormal(0.2),
        jitter=Quantiles((1, 1, 3)),
        barrier=Barrier.STEP,
        seed=4,
    )
    outcome = simulate_ranks(SCHEDULE, PLATFORM, expected)
    assert found["makespan"] == outcome.makespan
    assert found["waited"]["most"] == outcome.waited.max() > 0
    assert found["slowest"] == outcome.slowest


def test_transfers_of_ranks_may_go_on_behind_them(place: Path) -> None:
    found, plain = ranks(place, 8, *SHARED, *BEHIND), ranks(place, 8, *SHARED)
    eight, overlap = Ranks(count=8, shared={"archive": 2e6}), Overlap(1, 1)
    assert found["makespan"] == simulate_ranks(SCHEDULE, PLATFORM, eight, overlap=overlap).makespan
    assert found["alone"] == simulate(SCHEDULE, PLATFORM, overlap=overlap).makespan
    assert found["alone"] < found["makespan"] < plain["makespan"]
    assert (found["overlap"], "overlap" in plain) == (str(overlap), False)
    done = ckio("simulate", "plan.txt", "--ranks", 2, *BEHIND, at=place)
    assert f"; with {overlap}" in done.stdout


def test_the_tables_say_it_in_words(place: Path) -> None:
    words = ("--ranks", "3,spread=quantiles:1,2")
    said = ckio("simulate", "plan.txt", *SHARED, *words, at=place).stdout
    assert "3 ranks, 24 steps," in said
    assert "s for one rank alone" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["slowed", "on", "archive"] in [line[:3] for line in lines]
    assert ["archive", "2e+06"] in [line[:2] for line in lines]


def test_what_cannot_be_simulated_is_bad_input(place: Path) -> None:
    two = ("--ranks", 2)
    for words, what in (
        (("--ranks", "2,barrier=step", *BEHIND), "barriers cannot be simulated with overlap"),
        ((*two, "--shared", "disk=1GB"), "no channel is named 'disk'"),
        (SHARED, "--shared is for many ranks"),
        ((*two, "-o", "times.txt"), "--output is for one rank"),
        (("--ranks", 0), "count = 0"),
        (("--ranks", "many"), "'many' is not N[,spread=DIST]"),
        (("--ranks", "2,seed=-1"), "seed = -1"),
        (("--ranks", "2,speed=3"), "'2,speed=3' is not N[,spread=DIST]"),
        (("--ranks", "2,spread=normal:1"), "is not lognormal"),
        (("--ranks", "2,jitter=lognormal:-1"), "sigma = -1"),
        (("--ranks", "2,barrier=always"), "barrier=none|step|stretch"),
        ((*two, "--shared", "archive"), "is not CHANNEL="),
        ((*two, "--shared", "archive=1e-9"), "is not a size"),
        ((*two, "--shared", "archive=-1GB"), "is not a size"),
        ((*two, "--shared", "archive=0"), "bandwidth of 'archive' is 0;"),
        ((*two, *SHARED, *SHARED), "is given twice"),
    ):
        assert what in complaint("simulate", "plan.txt", *words, at=place)
