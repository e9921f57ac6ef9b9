"""A package of somebody else's, installed by pip: ckio finds by name what it brings, and uses it.

The package is that of docs/adapters/plugins.md, in tests/plugins.
"""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio

from ckio.adapters import registry
from ckio.errors import BadInput, CkioError
from ckio.jobs.leftovers import Found, remove
from ckio.model import sizes_of
from ckio.models.vorticity import Vorticity
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

HERE = Path(__file__).parent / "plugins"
PAGE = (Path(__file__).parents[1] / "docs" / "adapters" / "plugins.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE, re.DOTALL)

MODULES = ("model", "compression", "planning", "storage")
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


Put = Callable[[Path], None]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Put packages where this process and its forks find them."""
    places = list[Path]()

    def on_path(place: Path) -> None:
        places.append(place)
        monkeypatch.syspath_prepend(place)
        registry._entries.cache_clear()

    yield on_path
    monkeypatch.undo()
    registry._entries.cache_clear()
    for name, module in list(sys.modules.items()):
        if any(Path(getattr(module, "__file__", None) or "/").is_relative_to(it) for it in places):
            del sys.modules[name]


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


def test_the_page_shows_parts_of_it_and_links_to_all() -> None:
    files = {name: HERE / "ckio_example" / f"{name}.py" for name in MODULES}
    for block in BLOCKS[1:-1]:
        assert any(block in path.read_text() for path in files.values())
    for path in files.values():
        assert f"(../../tests/plugins/ckio_example/{path.name})" in PAGE
    assert (HERE / "pyproject.toml").read_text().startswith(BLOCKS[0])


@pytest.mark.slow
def test_it_passes_the_tests_that_ckio_passes(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(BLOCKS[-1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site, HERE.parents[1])))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 90
    skipped = re.findall(r"(\d+) skipped", done.stdout)
    assert skipped in ([], ["3"])  # what only levels that keep memory can show


def test_all_it_brings_is_used_by_name(site: Path, put: Put, tmp_path: Path) -> None:
    put(site)
    level = "x=one-file-each:far,capacity=2KiB,codec=zlib,codec_level=2"
    model = "--model", "lorenz96", *SETTINGS
    ckio("calibrate", "--level", level, *model, "--repeats", 1, "-o", "node.toml", at=tmp_path)
    (name,) = Platform.loads((tmp_path / "node.toml").read_text()).models
    assert name == "lorenz96 cells=40"
    common = "--steps", 9, "--platform", "node.toml", "--planner"
    plan = answer("plan", *common, "evenly", at=tmp_path)
    assert plan["planner"] == "evenly"
    assert plan["forward_steps"] > 9
    job = "run", "lorenz96", *SETTINGS, *common
    found = answer(*job, "evenly", "--into", "run", "--check-gradient", at=tmp_path)
    assert found["verified"] is True
    plain = answer(*job, "hrevolve", "--into", "other", at=tmp_path)
    assert found["gradient_digest"] == plain["gradient_digest"]


@pytest.mark.slow
def test_a_killed_run_is_inspected_resumed_and_cleaned(
    site: Path, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    options = {"path": str(far), "codec": "zlib", "codec_level": 2}
    place = tmp_path / "node.toml"
    vorticity(place, capacity=60_000, backend="one-file-each", options=options)
    (tmp_path / "deadly.py").write_text(DEADLY)
    job = ["run", "deadly:Deadly", "--set", f"grid={GRID}", "--planner", "evenly", "--steps", 20,
           "--platform", "node.toml", "--resume", "--into"]  # fmt: skip
    missing = ckio(*job, "whole", at=tmp_path, status=2).stderr
    assert missing.count("\n") == 1
    assert "'evenly'" in missing or "'one-file-each'" in missing
    put(site)
    whole = answer(*job, "whole", at=tmp_path)
    monkeypatch.setenv("KILL", "13")
    ckio(*job, "killed", at=tmp_path, status=-signal.SIGKILL)
    monkeypatch.delenv("KILL")

    found = answer("inspect", "killed", "--verify", at=tmp_path)
    steps = {checkpoint["step"] for checkpoint in found["checkpoints"]}
    assert 0 in steps
    assert max(steps) <= 13
    assert all(checkpoint["sound"] and checkpoint["codec"] for checkpoint in found["checkpoints"])

    shutil.copytree(far, tmp_path / "copy")
    resumed = answer(*job, "killed", at=tmp_path)
    assert resumed["gradient_digest"] == whole["gradient_digest"]
    assert resumed["functional"] == whole["functional"]
    assert resumed["forward_steps"] < whole["forward_steps"]
    assert not list(far.rglob("*.checkpoint"))

    shutil.rmtree(far)  # as after a kill, once more
    (tmp_path / "copy").rename(far)
    cleaned = answer("inspect", "killed", "--remove", "--yes", at=tmp_path)
    assert cleaned["removed"][0]["checkpoints"] == len(steps)
    assert not list(far.rglob("*.checkpoint"))


# What other packages may get wrong


BROKEN = (
    "[ckio.planners]\nbroken = broken_planner:plan\n[ckio.backends]\nram = broken_planner:Ram\n"
)


def test_one_that_cannot_be_imported_or_has_a_name_of_ckios_is_named(
    tmp_path: Path, put: Put
) -> None:
    text = "raise RuntimeError('its library is too old')\n"
    put(package(tmp_path / "broken", "somebodys", BROKEN, broken_planner=text))
    with pytest.raises(BadInput, match=r"'broken' of somebodys 2\.0.*its library is too old"):
        registry.find("planners", "broken")
    assert callable(registry.find("planners", "hrevolve"))
    with pytest.raises(BadInput, match=r"'ram' is registered by .*uninstall all but one") as caught:
        registry.find("backends", "ram")
    assert "somebodys 2.0" in str(caught.value)
    assert re.search(r"\bckio \d", str(caught.value))


def test_two_packages_with_one_name_are_told(tmp_path: Path, put: Put) -> None:
    for name in ("ones", "others"):
        registered = f"[ckio.planners]\nevenly = {name}:evenly\n"
        put(package(tmp_path / name, name, registered, **{name: "evenly = print"}))
    with pytest.raises(BadInput, match=r"planner 'evenly' is registered by .*(ones|others) 2.0"):
        registry.find("planners", "evenly")


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


def test_a_planner_that_is_wrong_is_named(tmp_path: Path, put: Put) -> None:
    """What it plans is refused before anything begins."""
    lines = "".join(f"{name} = wrong:{name}\n" for name in WRONG)
    put(package(tmp_path / "wrong", "wrongs", f"[ckio.planners]\n{lines}", wrong=PLANNERS))
    vorticity(tmp_path / "node.toml")
    machine = "--set", f"grid={GRID}", "--steps", 3, "--platform", "node.toml", "--planner"
    for command in (("plan", "--model", "vorticity"), ("run", "vorticity", "--into", "run")):
        for name, words in WRONG.items():
            assert words in ckio(*command, *machine, name, at=tmp_path, status=1).stderr
    assert not (tmp_path / "run").exists()


BARE = """\
from ckio.backends.base import Backend


class Bare(Backend):
    durable = True

    @staticmethod
    def for_run(path, run):
        return path / run
"""


def test_a_backend_that_cannot_answer_for_its_files_is_named(tmp_path: Path, put: Put) -> None:
    put(package(tmp_path / "bare", "bares", "[ckio.backends]\nbare = bare:Bare\n", bare=BARE))
    far = tmp_path / "far"
    far.mkdir()
    level = Found(far, "bare", "cafe")
    with pytest.raises(CkioError, match=f"^{far}.*'Bare' cannot list what it stores"):
        level.read()
    with pytest.raises(CkioError, match=f"^{far}.*'Bare' cannot remove what it stored"):
        remove(level)
    assert far.is_dir()


GONE = """\
import shutil

from ckio.backends.ram import Ram


class Simple(Ram):
    durable = True

    def __init__(self, path):
        super().__init__()
        self.path = path

    @staticmethod
    def for_run(path, run):
        return path / run

    def remove(self):
        shutil.rmtree(self.path)
"""


def test_a_backend_that_removes_what_it_stored_is_asked_to(tmp_path: Path, put: Put) -> None:
    put(package(tmp_path / "gone", "simples", "[ckio.backends]\nsimple = gone:Simple\n", gone=GONE))
    far = tmp_path / "far"
    far.mkdir()
    (far / "checkpoint").touch()
    remove(Found(far, "simple", "cafe"))
    assert not far.exists()


def test_a_ckio_that_is_not_installed_says_so(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its planners and backends are entry points, which a directory on the path does not have."""
    put(tmp_path)
    monkeypatch.setattr(registry, "entry_points", lambda **_: ())
    with pytest.raises(BadInput, match=r"ckio is imported, but not installed.*pip install"):
        registry.find("backends", "ram")
