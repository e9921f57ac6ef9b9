"""A package of somebody else's, installed by pip: ckio finds by name what it brings, and uses it.

The package is that of docs/adapters/plugins.md, in tests/plugins.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ckio.model import sizes_of
from ckio.models.vorticity import Vorticity
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

HERE = Path(__file__).parent / "plugins"
CHECKOUT = Path(__file__).parents[1]
"""Where the ckio is that is tested, wherever another one is installed."""

PAGE = (Path(__file__).parents[1] / "docs" / "adapters" / "plugins.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, re.DOTALL)
CKIO = Path(sys.executable).with_name("ckio")

GRID = 8
SETTINGS = "--set", "cells=40"
DEADLY = """\
import os, signal
from ckio.models.vorticity import Vorticity

class Deadly(Vorticity):
    def adjoint_step(self, adjoint, tape, i):
        if i == int(os.environ.get("KILL", -1)):
            os.kill(os.getpid(), signal.SIGKILL)
        super().adjoint_step(adjoint, tape, i)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the package; without network, and nowhere near this environment."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    source = tmp_path_factory.mktemp("source") / "plugins"
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("__pycache__"))
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--target", site, source]
    subprocess.run([*pip, *options], check=True, capture_output=True)
    return site


def python(
    *words: object, at: Path, paths: tuple[Path, ...], status: int = 0, kill: int = -1
) -> str:
    """A new process with these packages in reach; returns what it says, errors where it failed."""
    found = os.pathsep.join(map(str, (*paths, CHECKOUT)))
    environment = {**os.environ, "PYTHONPATH": found, "KILL": str(kill)}
    done = subprocess.run(
        list(map(str, words)), cwd=at, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr if status else done.stdout


def answer(*words: object, at: Path, paths: tuple[Path, ...]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(python(CKIO, *words, "--json", at=at, paths=paths))
    return found


def package(where: Path, name: str, registered: str, **modules: str) -> Path:
    """A package as pip would leave it: modules, and what says what it registers."""
    info = where / f"{name}-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(registered)
    for module, text in modules.items():
        (where / f"{module}.py").write_text(text)
    return where


def vorticity(path: Path, **level: Any) -> None:
    """A platform of one level, which has the costs of the models that are run here."""
    sizes = sizes_of(Vorticity(grid=GRID))
    chain = Chain(steps=None, advance=1e-3, record=1e-3, reverse=2e-3, **sizes)
    models = {f"{name} grid={GRID}": chain for name in ("vorticity", "deadly:Deadly")}
    path.write_text(Platform((Level(name="x", **level),), models=models).dumps())


@pytest.mark.parametrize("name", ["model", "compression", "planning", "storage"])
def test_the_page_has_every_line_of_it(name: str) -> None:
    assert (HERE / "ckio_example" / f"{name}.py").read_text() in BLOCKS


def test_the_page_has_what_is_registered() -> None:
    assert (HERE / "pyproject.toml").read_text().startswith(BLOCKS[0])


@pytest.mark.slow
def test_it_passes_the_tests_that_ckio_passes(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(BLOCKS[-1])
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
    said = python(*pytest_, at=tmp_path, paths=(site,))
    assert int(re.findall(r"(\d+) passed", said)[0]) > 90
    assert "failed" not in said
    skipped = re.findall(r"(\d+) skipped", said)
    assert skipped in ([], ["3"])  # what only levels that keep memory can show


def test_all_it_brings_is_used_by_name(site: Path, tmp_path: Path) -> None:
    level = "x=one-file-each:far,capacity=2KiB,codec=zlib,codec_level=2"
    words = "--level", level, "--model", "lorenz96", *SETTINGS, "-o", "node.toml"
    python(CKIO, "calibrate", *words, at=tmp_path, paths=(site,))
    (name,) = Platform.loads((tmp_path / "node.toml").read_text()).models
    assert name == "lorenz96 cells=40"
    common = "--steps", 9, "--platform", "node.toml", "--planner"
    plan = answer("plan", *common, "evenly", at=tmp_path, paths=(site,))
    assert plan["planner"] == "evenly"
    assert plan["forward_steps"] > 9
    job = "run", "lorenz96", *SETTINGS, *common
    words = "evenly", "--into", "run", "--check-gradient"
    found = answer(*job, *words, at=tmp_path, paths=(site,))
    assert found["verified"] is True
    plain = answer(*job, "hrevolve", "--into", "other", at=tmp_path, paths=(site,))
    assert found["gradient_digest"] == plain["gradient_digest"]


@pytest.mark.slow
def test_a_killed_run_is_inspected_resumed_and_cleaned(site: Path, tmp_path: Path) -> None:
    vorticity(
        tmp_path / "node.toml",
        capacity=60_000,
        backend="one-file-each",
        options={"path": str(tmp_path / "far"), "codec": "zlib", "codec_level": 2},
    )
    (tmp_path / "deadly.py").write_text(DEADLY)
    job = ["run", "deadly:Deadly", "--set", f"grid={GRID}", "--planner", "evenly", "--steps", 20,
           "--platform", "node.toml", "--resume", "--into"]  # fmt: skip
    whole = answer(*job, "whole", at=tmp_path, paths=(site,))
    killed = -signal.SIGKILL
    python(CKIO, *job, "killed", at=tmp_path, paths=(site,), status=killed, kill=13)

    found = answer("inspect", "killed", "--verify", at=tmp_path, paths=(site,))
    steps = {checkpoint["step"] for checkpoint in found["checkpoints"]}
    assert 0 in steps
    assert max(steps) <= 13
    assert all(checkpoint["sound"] and checkpoint["codec"] for checkpoint in found["checkpoints"])

    missing = python(CKIO, *job, "killed", at=tmp_path, paths=(), status=2)
    assert missing.count("\n") == 1
    assert "'evenly'" in missing or "'one-file-each'" in missing
    assert "where that is installed" in missing

    shutil.copytree(tmp_path / "far", tmp_path / "copy")
    resumed = answer(*job, "killed", at=tmp_path, paths=(site,))
    assert resumed["gradient_digest"] == whole["gradient_digest"]
    assert resumed["functional"] == whole["functional"]
    assert resumed["forward_steps"] < whole["forward_steps"]
    assert not list((tmp_path / "far").rglob("*.checkpoint"))

    shutil.rmtree(tmp_path / "far")  # as after a kill, once more
    (tmp_path / "copy").rename(tmp_path / "far")
    cleaned = answer("clean", "killed", "--yes", at=tmp_path, paths=(site,))
    assert cleaned["removed"][0]["checkpoints"] == len(steps)
    assert not list((tmp_path / "far").rglob("*.checkpoint"))


# What other packages may get wrong


BROKEN = (
    "[ckio.planners]\nbroken = broken_planner:plan\n[ckio.backends]\nram = broken_planner:Ram\n"
)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A package that cannot be imported, and has a name that ckio has."""
    text = "raise RuntimeError('its library is too old')\n"
    return package(tmp_path / "broken", "somebodys", BROKEN, broken_planner=text)


def asked(at: Path, paths: tuple[Path, ...], call: str) -> str:
    """What the registry says in a new process."""
    script = (
        f"from ckio.adapters import registry\ntry:\n    print({call})\n"
        "except registry.BadInput as error:\n    print(error)"
    )
    return python(sys.executable, "-c", script, at=at, paths=paths).strip()


@pytest.mark.slow
def test_one_that_cannot_be_imported_is_named_with_its_package(
    tmp_path: Path, broken: Path
) -> None:
    said = asked(tmp_path, (broken,), "registry.find('planners', 'broken')")
    assert said == (
        "planner 'broken' of somebodys 2.0 cannot be imported: RuntimeError: its library is too old"
    )
    assert "hrevolve" in asked(tmp_path, (broken,), "registry.find('planners', 'hrevolve')")


def test_a_name_that_ckio_has_is_not_taken_in_silence(tmp_path: Path, broken: Path) -> None:
    said = asked(tmp_path, (broken,), "registry.find('backends', 'ram')")
    assert re.fullmatch(
        r"backend 'ram' is registered by (somebodys 2\.0 and by ckio \S+|ckio \S+ and by somebodys"
        r" 2\.0); which is meant cannot be told: uninstall all but one",
        said,
    )


@pytest.mark.slow
def test_two_packages_with_one_name_are_told(tmp_path: Path, site: Path) -> None:
    text = "def evenly(chain, platform): ..."
    registered = "[ckio.planners]\nevenly = others:evenly\n"
    other = package(tmp_path / "other", "others", registered, others=text)
    for paths in ((site, other), (other, site)):
        said = asked(tmp_path, paths, "registry.find('planners', 'evenly')")
        assert said.startswith("planner 'evenly' is registered by ")
        assert "others 2.0" in said
        assert "ckio-example 1.0" in said


PLANNERS = """\
from ckio.planners.draft import Draft

def reads_nothing(chain, platform):
    draft = Draft()
    draft.read(0, level=0)
    return draft.schedule(chain)

def too_short(chain, platform):
    draft = Draft()
    draft.advance(0, chain.length - 1)
    draft.step_back(chain.length - 1)
    return draft.schedule(chain)

def of_another_chain(chain, platform):
    draft = Draft()
    draft.step_back(0)
    return draft.schedule(chain.with_steps(1))

def no_schedule(chain, platform):
    return ["advance"]

def divides(chain, platform):
    return 1 / 0
"""
WRONG = {
    "reads_nothing": "planner 'reads_nothing' made no legal schedule: ",
    "too_short": "planner 'too_short' made no schedule of this chain: it reverses 1 of 3 steps",
    "of_another_chain": "'of_another_chain' made no schedule of this chain: it reverses 1 of 3",
    "no_schedule": "planning 3 steps with no_schedule: it returned a list, which is no Schedule",
    "divides": "planning 3 steps with divides: ZeroDivisionError",
}


@pytest.mark.campaign
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_planner_that_is_wrong_is_named(tmp_path: Path, command: str) -> None:
    """All of them in one process: what they plan is refused before anything begins."""
    lines = "".join(f"{name} = wrong:{name}\n" for name in WRONG)
    there = package(tmp_path / "wrong", "wrongs", f"[ckio.planners]\n{lines}", wrong=PLANNERS)
    vorticity(tmp_path / "node.toml")
    script = f"""\
import sys
from ckio.cli import main
model = ["vorticity", "--into", "run"] if {command!r} == "run" else ["--model", "vorticity"]
for name in {list(WRONG)}:
    try:
        main([{command!r}, *model, "--set", "grid={GRID}", "--planner", name, "--steps", "3",
              "--platform", "node.toml"])
    except SystemExit as end:
        print(end.code, file=sys.stderr)
sys.exit(1)
"""
    said = python(sys.executable, "-c", script, at=tmp_path, paths=(there,), status=1).splitlines()
    assert said[1::2] == ["1"] * len(WRONG)
    for line, expected in zip(said[::2], WRONG.values(), strict=True):
        assert expected in line
    assert not (tmp_path / "run").exists()


BARE = """\
class Bare:
    durable = True

    @staticmethod
    def for_run(path, run):
        return path / run
"""


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("level.contents()", "cannot list what it stores"),
        ("remove(level)", "cannot remove what it stored"),
    ],
)
def test_a_backend_that_cannot_answer_for_its_files_is_named(
    tmp_path: Path, call: str, said: str
) -> None:
    there = package(tmp_path / "bare", "bares", "[ckio.backends]\nbare = bare:Bare\n", bare=BARE)
    (tmp_path / "far").mkdir()
    asked = f"""\
from pathlib import Path
from ckio.errors import CkioError
from ckio.jobs.leftovers import Holding, remove
level = Holding(Path("far"), "bare", "cafe")
try:
    {call}
except CkioError as error:
    print(error)
"""
    answer = python(sys.executable, "-c", asked, at=tmp_path, paths=(there,))
    assert answer.startswith("far")
    assert f"backend 'bare' {said}" in answer
    assert (tmp_path / "far").is_dir()
