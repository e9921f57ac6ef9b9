"""Compression as one meets it: chosen by calibration, counted on by plans, told by every report."""

import html
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import MODEL

from ckio.actions.columns import WRITE
from ckio.backends.directory import Directory
from ckio.backends.runid import RunId, computing
from ckio.jobs.directory import manifest_in
from ckio.schedule.text import loads

FRONTS = '''

class Slow(Growth):
    """With steps that take so long that slots are worth their price."""

    def step(self, state, i):
        time.sleep(2e-3)
        super().step(state, i)


def slow():
    return front(make=Slow)


def front(noise=0, make=Growth):
    """A front in water that is at rest elsewhere, and some noise."""
    x = np.zeros(2048)
    x[:100] = np.linspace(0.1, 0.4, 100)
    rough = np.random.default_rng(0).integers(0, 256, 16 * noise, np.uint8)
    return make({"x": x, "rough": rough, "J": 0.0}, control={"rate": 0.3}, tape=["x"])
'''
FRONT = 16_392
"""Bytes of a checkpoint of the front."""


NODE = f"""\
working_memory = 16384
[models."ocean:front"]
advance = 1e-5
record = 1e-5
reverse = 2e-5
restart = {FRONT}
tape = 16384
adjoint = 16408

[[level]]
name = "nvme"
capacity = {8 * FRONT}
backend = "directory"
"""
CODECS = {
    "plain": 'options = {path = "ck"}',
    "zstd": 'options = {path = "ck", codec = "zstd"}\nratio = 0.05\nwrite = {latency = 1e-4}',
    "lossy": 'options = {path = "ck", codec = "zfp", codec_tolerance = 1e-6}\nratio = 0.1',
}
LOSSY = "LOSSY, by zfp(tolerance=1e-06)"


def calibrate(
    at: Path, *options: str, into: str, backend: str = "directory:ck", model: str = "ocean:front"
) -> dict[str, Any]:
    """Calibrate a level in files with room for eight checkpoints; what is said of it."""
    level = ",".join([f"nvme={backend}", f"capacity={8 * FRONT}", *options])
    words = ("--model", model, "--repeats", 1, "-o", into)
    (found,) = answer("calibrate", "--level", level, *words, at=at)["levels"]
    (kept,) = tomllib.loads((at / into).read_text())["level"]
    assert kept.get("note", "") == found["note"]
    return found | {"options": kept["options"]}


def run(at: Path, into: str, *more: object, platform: str) -> Any:
    return answer(*_run(into, platform=platform), *more, at=at)


def _run(into: str, *, platform: str) -> tuple[object, ...]:
    return ("run", "ocean:front", *_machine(platform), "--into", into)


def _machine(platform: str) -> tuple[object, ...]:
    return ("--planner", "revolve", "--steps", 60, "--platform", f"{platform}.toml")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model, and a machine for it with and without a codec."""
    at = tmp_path_factory.mktemp("codecs")
    (at / "ocean.py").write_text(MODEL + FRONTS)
    for name, level in CODECS.items():
        (at / f"{name}.toml").write_text(NODE + level)
    return at


# Chosen


@pytest.mark.slow
def test_auto_names_a_codec_and_says_why_where_checkpoints_shrink(place: Path) -> None:
    found = calibrate(place, "codec=auto", into="auto.toml", model="ocean:slow")
    assert found["codec"] in ("zstd", "blosc2", "zfp")
    assert found["options"]["codec"] == found["codec"]
    assert found["ratio"] < 0.5
    assert found["lossless"] is True
    runs = [run(place, f"auto-{name}", platform=name) for name in ("auto", "plain")]
    assert runs[0]["forward_steps"] < runs[1]["forward_steps"]
    assert runs[0]["gradient_digest"] == runs[1]["gradient_digest"]
    said = rf"{found['codec']}: a run of 1000 steps takes .* instead of .*"
    assert re.match(said, found["note"])
    level = f"nvme=directory:ck,codec=auto,capacity={8 * FRONT}"
    words = ("--level", level, "--model", "ocean:slow", "--repeats", 1, "-o", "said.toml")
    out = ckio("calibrate", *words, at=place).stdout
    (level,) = tomllib.loads((place / "said.toml").read_text())["level"]
    assert f"level nvme: {level['note']}\n" in out
    assert f"nvme (directory, {level['options']['codec']})" in out


@pytest.mark.slow
def test_auto_takes_no_codec_where_checkpoints_are_noise(place: Path) -> None:
    words = ("--set", "noise=100000", "--model", "ocean:front", "--repeats", 1, "-o", "rough.toml")
    levels = ("--level", "ram=ram,codec=auto", "--level", "nvme=directory:ck,codec=auto")
    found = answer("calibrate", *levels, *words, at=place)["levels"]
    assert [(level["codec"], level["ratio"]) for level in found] == [(None, 1.0)] * 2
    assert all(level["note"].startswith("no codec: none shrinks") for level in found)


def test_auto_needs_a_model_and_a_calibration(place: Path) -> None:
    words = ("calibrate", "--level", "nvme=directory:ck,codec=auto", "-o", "no.toml")
    assert "give --model" in complaint(*words, at=place)
    wrong = ("--level", "archive=hdf5:a.h5,codec=zst")  # seen before anything is measured
    assert "did you mean zstd" in complaint(*words, *wrong, "--model", "ocean:front", at=place)
    options = "nvme=directory:ck,codec=auto,codec_level=3"
    line = complaint("calibrate", "--level", options, "--model", "ocean:front", at=place)
    assert "accepts no options of a codec" in line
    text = (place / "zstd.toml").read_text()
    (place / "unset.toml").write_text(text.replace('codec = "zstd"', 'codec = "auto"'))
    line = complaint(*_run("no", platform="unset"), at=place)
    assert "level 'nvme': codec = 'auto' is for `ckio calibrate --model`" in line
    assert "zstd" in line


def test_the_help_lists_codecs_durabilities_and_their_options(tmp_path: Path) -> None:
    out = ckio("calibrate", "--help", at=tmp_path).stdout
    for word in ("zstd", "codec_level=1", "codec=NAME", "auto", "process", "fdatasync", "direct"):
        assert word in out


# Counted on


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["directory:ck", "hdf5:ck/a.h5"])
def test_compression_buys_slots_and_the_gradient_stays_the_same(place: Path, backend: str) -> None:
    plans, runs, kind = [], [], backend.partition(":")[0]
    for name, options in ((f"{kind}-plain", ()), (f"{kind}-zstd", ("codec=zstd",))):
        calibrate(place, *options, into=f"{name}.toml", backend=backend)
        plans.append(answer("plan", *_machine(name), at=place))
        runs.append(run(place, f"run-{name}", platform=name))
    (few,), (many,) = (plan["levels"] for plan in plans)
    assert few["peak"] == 8
    assert many["peak"] >= 16
    assert plans[1]["forward_steps"] < plans[0]["forward_steps"]
    assert [found["forward_steps"] for found in runs] == [p["forward_steps"] for p in plans]
    for name in ("gradient_digest", "functional"):
        assert runs[0][name] == runs[1][name]
    (level,) = runs[1]["levels"]
    assert level["written"] < many["writes"] * FRONT / 2
    assert (level["codec"], level["lossless"]) == ("zstd", True)


def test_a_simulation_takes_the_levels_measured_costs_and_stored_bytes(place: Path) -> None:
    (place / "measured.toml").write_text(
        f"{NODE}ratio = 0.04\noptions = {{path = 'ck', codec = 'zstd'}}\n"
        "write = {latency = 1e-4, per_byte = 2e-9}\nread = {latency = 3e-5, per_byte = 1e-9}\n"
        "discard = {latency = 1e-6}\nprofile = {first = {latency = 5e-4, per_byte = 7e-9}}\n"
    )
    plan = answer("plan", *_machine("measured"), "-o", "plan.txt", at=place)
    busy = answer("simulate", "plan.txt", "-o", "timeline.txt", at=place)["busy"]
    (level,) = tomllib.loads((place / "measured.toml").read_text())["level"]
    counts, seconds = plan["levels"][0], 0.0
    times = {access: counts[f"{access}s"] for access in ("write", "read", "discard")}
    for cost, many in (
        *((level[access], many) for access, many in times.items()),
        (level["profile"]["first"], counts["peak"]),
        (level["write"], -counts["peak"]),
    ):
        seconds += many * (cost["latency"] + cost.get("per_byte", 0) * FRONT)
    assert busy["nvme"] == pytest.approx(seconds)
    timeline = loads((place / "timeline.txt").read_text()).timeline
    assert timeline is not None
    stored = int(timeline.nbytes[timeline.actions.op == WRITE].sum())
    assert stored == counts["writes"] * math.ceil(FRONT * level["ratio"])


def test_a_level_that_shrinks_less_than_planned_is_full_and_the_run_goes_on(place: Path) -> None:
    text = (place / "zstd.toml").read_text()
    (place / "rosy.toml").write_text(text.replace("ratio = 0.05", "ratio = 0.01"))
    noise = ("--set", "noise=500", "--json")
    done = ckio(*_run("rosy", platform="rosy"), *noise, at=place)
    for word in ("Write(x_", "on 'nvme'", "bytes, but only", f"of {8 * FRONT} are free"):
        assert word in done.stderr
    assert re.search(r"it takes \d\d% of its bytes, and the level's ratio promises 1%", done.stderr)
    assert done.stderr.count("planned anew") == 1
    exact = run(place, "with-room", *noise[:2], platform="plain")
    assert json.loads(done.stdout)["gradient_digest"] == exact["gradient_digest"]


def test_the_durability_that_is_measured_is_the_one_in_the_file(tmp_path: Path) -> None:
    for durability in ("process", "fdatasync"):
        level = ("--level", f"nvme=directory:ck,durability={durability},capacity=8KiB")
        words = ("calibrate", *level, "--repeats", 1, "-o", "durable.toml")
        (found,) = answer(*words, at=tmp_path)["levels"]
        (kept,) = tomllib.loads((tmp_path / "durable.toml").read_text())["level"]
        assert found["durability"] == kept["options"]["durability"] == durability


# Told


def test_a_lossy_level_is_told_by_every_report(place: Path) -> None:
    pytest.importorskip("zfpy")
    codec = ("--level", "nvme=directory:ck,codec=zfp,codec_tolerance=1e-6,capacity=32KiB")
    words = ("calibrate", *codec, "--repeats", 1)
    (found,) = answer(*words, "-o", "lossy-1.toml", at=place)["levels"]
    assert found["lossless"] is False
    assert f"level nvme: {LOSSY}" in ckio(*words, "-o", "lossy-2.toml", at=place).stdout

    exact, rounded = (run(place, f"as-{name}", platform=name) for name in ("plain", "lossy"))
    (level,) = rounded["levels"]
    assert (level["codec"], level["lossless"]) == ("zfp", False)
    assert exact["levels"][0]["lossless"] is True
    assert rounded["gradient_digest"] != exact["gradient_digest"]
    norms = [found["gradient"]["rate"]["norm"] for found in (rounded, exact)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)

    line, named = f"level nvme: {LOSSY}\n", {"nvme": "zfp(tolerance=1e-06)"}
    planned = ("plan", *_machine("lossy"), "--model", "ocean:front")
    for words in ((*planned, "-o", "lossy.txt"), ("simulate", "lossy.txt")):
        assert answer(*words, at=place)["lossy"] == named
        assert line in ckio(*words, at=place).stdout
    assert line in ckio("show", "lossy.txt", at=place).stdout

    sentence = "the gradient is that of rounded states: LOSSY is level 'nvme', by zfp(tolerance="
    assert sentence in ckio(*_run("told", platform="lossy"), at=place).stdout
    assert sentence in ckio("compare", "told", at=place).stdout
    assert answer("compare", "told", at=place)["lossy"] == named
    for file in ("told/schedule.txt", "told/measured.txt"):
        ckio("show", file, "--html", "page.html", at=place)
        assert html.escape(sentence) in (place / "page.html").read_text()


def test_what_is_lossless_is_not_told_to_be_lossy(place: Path) -> None:
    assert "LOSSY" not in ckio(*_run("silent", platform="zstd"), at=place).stdout
    assert "LOSSY" not in ckio("show", "silent/measured.txt", at=place).stdout
    assert answer("compare", "silent", at=place)["lossy"] == {}


def test_a_run_is_inspected_also_where_it_never_wrote_to_a_level(place: Path) -> None:
    near = NODE.replace('"nvme"', '"near"') + 'options = {path = "near"}\n'
    far = '[[level]]\nname = "far"\nbackend = "directory"\n'
    (place / "two.toml").write_text(f'{near}{far}options = {{path = "far", codec = "zstd"}}')
    run(place, "on-far", "--planner", "revolve:on=far", platform="two")
    manifest = manifest_in(place / "on-far")
    for name in ("near", "far"):  # as before the first write of a run
        own = RunId(computing(manifest.run, manifest.identity))
        Directory(place / name / manifest.run, run=own).close()
    assert answer("inspect", "on-far", "--verify", at=place)["damaged"] == []
    ckio("inspect", "on-far", "--remove", "--yes", at=place)
