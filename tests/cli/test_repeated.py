"""`ckio simulate --repeat`: what is said of many runs, in words and in JSON."""

from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint

PLATFORM = """
drift = "lognormal:0.1"
[[level]]
name = "ram"
capacity = "3MiB"
[[level]]
name = "archive"
backend = "hdf5"
write = {latency = 0.5, per_byte = 2e-6}
read = {latency = 0.25, per_byte = 1e-6}
profile.spread.write = "quantiles:0.5,1,1.5"
profile.write_hinders = 0.125
"""
COSTS = {"advance": 1, "record": 1, "reverse": 2, "restart": "1MiB", "tape": 1, "adjoint": 1}
CHAIN = ["--steps", 40, *(word for name in COSTS for word in (f"--{name}", COSTS[name]))]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(PLATFORM)
    return tmp_path


@pytest.mark.campaign
@pytest.mark.parametrize("overlap", ["none", "all"])
def test_an_interval_is_told_around_the_makespan(place: Path, overlap: str) -> None:
    words = ("simulate", "--platform", "node.toml", *CHAIN, "--overlap", overlap)
    plain = answer(*words, at=place)
    found = answer(*words, "--repeat", 100, at=place)
    assert found["makespan"] == plain["makespan"]
    assert "repeat" not in plain
    told = found["repeat"]
    assert told["runs"] == 100
    assert told["p05"] < told["p50"] < told["p95"]
    assert told["p05"] < found["makespan"] < told["p95"]
    assert answer(*words, "--repeat", 100, at=place) == found
    said = ckio(*words, "--repeat", 100, at=place).stdout
    assert f"of 100 runs, nine of ten take {told['p05']:.6g} to {told['p95']:.6g} s" in said


def test_what_makes_no_sense_is_refused(place: Path) -> None:
    words = ("simulate", "--platform", "node.toml", *CHAIN)
    still = PLATFORM.replace("drift", "# drift").replace("profile.s", "# ")
    for platform, more, said in (
        (PLATFORM, ("--repeat", 3, "--ranks", 2), "--repeat is for one rank"),
        (still, ("--repeat", 3), "has no distributions of times; calibrate it with --model"),
    ):
        (place / "node.toml").write_text(platform)
        assert said in complaint(*words, *more, at=place)
