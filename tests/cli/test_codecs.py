"""Compression as one meets it: chosen by calibration, counted on by plans, told by every report."""

import html
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import MODEL

from ckio.backends.directory import Directory
from ckio.backends.runid import RunId, computing
from ckio.jobs.directory import manifest_in

FRONTS = '''

def front(noise=0):
    """A front in water that is at rest elsewhere, and some noise."""
    x = np.zeros(2048)
    x[:100] = np.linspace(0.1, 0.4, 100)
    rough = np.random.default_rng(0).integers(0, 256, 16 * noise, np.uint8)
    return Growth({"x": x, "rough": rough, "J": 0.0}, control={"rate": 0.3}, tape=["x"])
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
