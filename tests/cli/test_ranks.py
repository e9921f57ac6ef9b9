"""Many ranks on the command line: what is said of them, in words and in JSON."""

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ckio.cli.options import json_option, overlap_option
from ckio.cli.simulate import ranks_of, ranks_options, simulate_and_say
from ckio.errors import BadInput
from ckio.planners.dp import hrevolve
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Lognormal, Quantiles
from ckio.schedule import makespan
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate
from ckio.sim.ranks import Barrier, Ranks
from ckio.sim.ranks.sharing import simulate_ranks

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


@click.command()
@ranks_options
@overlap_option
@json_option
def command(*, overlap: Overlap | None, as_json: bool, **options: Any) -> None:
    ranks = ranks_of(options)
    if ranks is None:
        click.echo(f"none, and {options}")
    else:
        simulate_and_say(SCHEDULE, PLATFORM, ranks, overlap or Overlap(), as_json=as_json)


def asked(*words: object) -> Result:
    return CliRunner().invoke(command, list(map(str, words)))


def answer(*words: object) -> dict[str, Any]:
    done = asked(*words, "--json")
    assert done.exit_code == 0, done.output
    assert done.output.count("\n") == 1
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_ranks_that_share_take_longer() -> None:
    found = answer("--ranks", 8, *SHARED)
    expected = simulate_ranks(SCHEDULE, PLATFORM, Ranks(count=8, shared={"archive": 2e6}))
    assert (found["ranks"], found["steps"], found["actions"]) == (8, 24, len(SCHEDULE))
    assert found["makespan"] == expected.makespan > found["alone"] == makespan(SCHEDULE, PLATFORM)
    archive, use = found["channels"]["archive"], expected.channels["archive"]
    assert archive["busy"] == use.busy
    assert archive["achieved"] == use.achieved == pytest.approx(2e6)
    assert (archive["bandwidth"], archive["bytes"], archive["most"]) == (2e6, use.nbytes, 8)
    alone = answer("--ranks", 8, "--shared", "archive=1TB/s")["channels"]["archive"]
    assert alone["slowed"] == {"least": 0, "median": 0, "most": 0}
    assert archive["slowed"]["least"] == archive["slowed"]["most"] == use.slowed[0] > 0
    assert found["waited"] == {"least": 0, "median": 0, "most": 0}


def test_all_that_is_said_of_ranks_is_heard() -> None:
    words = ("--spread", "lognormal:0.2", "--jitter", "quantiles:1,1,3", "--seed", 4)
    found = answer("--ranks", 5, "--shared", "archive=1MB", *words, "--barrier", "step")
    ranks = Ranks(
        count=5,
        shared={"archive": 1e6},
        spread=Lognormal(0.2),
        jitter=Quantiles((1, 1, 3)),
        barrier=Barrier.STEP,
        seed=4,
    )
    outcome = simulate_ranks(SCHEDULE, PLATFORM, ranks)
    assert found["makespan"] == outcome.makespan
    assert found["waited"]["most"] == outcome.waited.max() > 0
    assert found["slowest"] == outcome.slowest


def test_transfers_of_ranks_may_go_on_behind_them() -> None:
    found, plain = answer("--ranks", 8, *SHARED, *BEHIND), answer("--ranks", 8, *SHARED)
    ranks, overlap = Ranks(count=8, shared={"archive": 2e6}), Overlap(1, 1)
    assert found["makespan"] == simulate_ranks(SCHEDULE, PLATFORM, ranks, overlap=overlap).makespan
    assert found["alone"] == simulate(SCHEDULE, PLATFORM, overlap=overlap).makespan
    assert found["alone"] < found["makespan"] < plain["makespan"]
    assert (found["overlap"], "overlap" in plain) == (str(overlap), False)
    assert f"; with {overlap}" in asked("--ranks", 2, *BEHIND).output


def test_the_tables_say_it_in_words() -> None:
    said = asked("--ranks", 3, *SHARED, "--spread", "quantiles:1,2").output
    assert "3 ranks, 24 steps," in said
    assert "s for one rank alone" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["slowed", "on", "archive"] in [line[:3] for line in lines]
    assert ["archive", "2e+06"] in [line[:2] for line in lines]


def test_without_ranks_nothing_is_left_of_the_options() -> None:
    assert asked().output == "none, and {}\n"
    alone = answer("--ranks", 1)
    assert alone["makespan"] == pytest.approx(makespan(SCHEDULE, PLATFORM))
    assert alone["channels"] == {}


def test_what_cannot_be_simulated_is_bad_input() -> None:
    for words, what in (
        (("--ranks", 2, *BEHIND, "--barrier", "step"), "barriers cannot be simulated with overlap"),
        (("--ranks", 2, "--shared", "disk=1GB"), "no channel is named 'disk'"),
        (("--seed", 3), "--seed is for many ranks"),
        (("--barrier", "none"), "--barrier is for many ranks"),
        (SHARED, "--shared is for many ranks"),
    ):
        error = asked(*words).exception
        assert isinstance(error, BadInput)
        assert what in str(error)


def test_what_is_no_option_is_refused_by_name() -> None:
    for words, what in (
        (("--ranks", 0), "0 is not in the range"),
        (("--ranks", "many"), "'many' is not a valid integer"),
        (("--seed", -1), "-1 is not in the range"),
        (("--shared", "archive"), "is not CHANNEL="),
        (("--shared", "archive=1e-9"), "is not a size"),
        (("--shared", "archive=-1GB"), "is not a size"),
        (("--shared", "archive=0"), "bandwidth of 'archive' is 0;"),
        ((*SHARED, *SHARED), "archive is given twice"),
        (("--spread", "normal:1"), "is not lognormal"),
        (("--jitter", "lognormal:-1"), "sigma = -1"),
        (("--barrier", "always"), "'always' is not one of"),
    ):
        done = asked("--ranks", 2, *words)
        assert done.exit_code == 2
        assert what in " ".join(done.output.split())
