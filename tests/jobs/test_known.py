"""A run of a kind that was measured before begins at once."""

import json
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xxhash

from ckio import Affine, ArrayModel, Chain, Halted, Job, Level, Platform
from ckio.adapters.registry import find_model
from ckio.errors import BadInput
from ckio.jobs.display import Display
from ckio.jobs.known import Known, code_of, facts_of, kind_of
from ckio.models.burgers import Burgers

STEPS = 20


FUNCTIONS = """
import ckio

def step(x, p, i):
    return p * x, x  # {text}

def adjoint(xbar, x, p, i):
    return p * xbar + 1, x * xbar

model = ckio.functions(step, adjoint, 1.0, 0.5)
"""


class Notes(Display):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def tell(self, text: str, /) -> None:
        self.said.append(text)


class Halving(ArrayModel):
    same_costs = ("seed",)

    def __init__(self, seed: int = 0, size: int = 8) -> None:
        x = np.random.default_rng(seed).random(size)
        super().__init__({"x": x, "J": 0.0}, control={"x": x}, tape=())

    def step(self, state, i, /):
        state["x"] *= 0.5
        state["J"] += state["x"].sum()

    def adjoint_step(self, adjoint, tape, i, /):
        adjoint["x"][...] = 0.5 * (adjoint["x"] + adjoint["J"])


class Late(Halving):
    records_late = True


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CKIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def measures(tmp_path, cache) -> Callable[..., bool]:
    """Run a job; return whether it measured the machine."""
    runs = iter(range(100))

    def run(model=Burgers, steps=STEPS, **options) -> bool:
        notes = Notes()
        options = {"ram": "1MiB", **options}
        directory = tmp_path / f"run{next(runs)}"
        result = Job(directory, model=model, steps=steps, display=notes, **options).run()
        assert np.isfinite(result.functional)
        assert (directory / "platform.toml").exists()
        is_new, is_known = (
            any(text.startswith(begin) for text in notes.said)
            for begin in ("calibrated; ", "costs as measured ")
        )
        assert is_new != is_known
        return is_new

    return run


def kind(**changed):
    given = {
        "model": "burgers cells=64",
        "factory": Burgers,
        "facts": facts_of(Halving()),
        "levels": [Level(name="disk", backend="directory", options={"path": "scratch"})],
    }
    return kind_of(*(given | changed).values())


PLATFORM = Platform(
    (Level(name="disk", backend="directory", capacity=10, write=Affine(0.5)),),
    models={
        "m": Chain(
            steps=None, advance=1e-3, record=1e-3, reverse=1e-3, restart=8, tape=4, adjoint=8
        )
    },
)


def test_the_second_run_of_a_kind_measures_nothing(measures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert measures()
    assert not measures()
    assert not measures(ram="2MiB")  # the cost of a byte is the same
    assert not measures(steps=2 * STEPS)
    assert measures(settings={"grid": 100})
    assert measures(overlap="auto", disk="scratch")
    assert not measures(overlap="auto", disk="scratch")


def test_settings_that_a_model_names_do_not_change_costs(measures):
    assert measures(Halving, settings={"seed": 1})
    assert not measures(Halving, settings={"seed": 2})
    assert measures(Halving, settings={"size": 9})


def test_same_costs_are_names(tmp_path):
    class Wrong(Halving):
        same_costs = "seed"

    with pytest.raises(BadInput, match=r"same_costs = 'seed'; give names of settings"):
        Job(tmp_path / "run", model=Wrong, steps=3, settings={"seed": 1}).run()


def test_what_makes_a_kind():
    assert kind() == kind()
    for changed in (
        {"model": "burgers cells=65"},
        {"factory": Halving},  # in another file
        {"facts": facts_of(Halving(size=9))},
        {"facts": facts_of(Late())},
        {"levels": []},
        {"levels": [Level(name="disk", backend="directory", options={"path": "other"})]},
    ):
        assert kind(**changed) != kind()


def test_nodes_whose_names_differ_in_digits_share_a_kind(monkeypatch):
    def on(node):
        monkeypatch.setattr("platform.node", lambda: node)
        return kind()

    assert on("nid001") == on("nid002") != on("login1")


def test_code_that_cannot_be_read_makes_no_kind():
    scope: dict[str, object] = {}
    exec("def make(): ...", scope)
    assert kind(factory=scope["make"]) is None
    assert Known.of(None, 10) is None


def test_costs_are_those_of_the_file_with_the_capacity_of_the_run(cache):
    Known.of(kind(), 10).keep(PLATFORM, 10)
    known = Known.of(kind(), 10)
    asked = Level(name="disk", backend="directory", options={"path": "scratch"}, capacity=99)
    (level,) = known.on([asked]).levels
    assert (level.capacity, level.options, level.write.latency) == (99, {"path": "scratch"}, 0.5)
    assert known.on([]) is None


@pytest.mark.parametrize(
    ("had", "asked", "suffices"),
    [
        (10, 1000, True),  # both a second
        (10**5, 10**6, False),  # 12 and 120 s
        (10**6, 10**5, True),
        (10, None, False),
        (None, None, True),
        (None, 10**6, True),
    ],
)
def test_a_much_longer_run_is_measured_for_longer(cache, had, asked, suffices):
    Known.of(kind(), had).keep(PLATFORM, had)
    assert (Known.of(kind(), asked).platform is not None) == suffices


@pytest.mark.parametrize(
    ("predicted", "measured", "stays"),
    [(1.0, 1.4, True), (1.0, 1.6, False), (1.0, 0.7, True), (1.0, 0.6, False), (0.01, 0.09, True)],
)
def test_costs_by_which_a_run_was_far_off_are_forgotten(cache, predicted, measured, stays):
    known = Known.of(kind(), 10)
    known.keep(PLATFORM, 10)
    known.judge(predicted, measured)
    assert (Known.of(kind(), 10).platform is not None) == stays


class Slowing(Halving):
    """Steps take as long as `seconds` says, and the process is asked to stop at one of them."""

    seconds = 0.0
    stops_at = -1

    def step(self, state, i, /):
        super().step(state, i)
        time.sleep(self.seconds)
        if i == self.stops_at:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("seconds", "stays"), [(0.0, True), (0.02, False)])
def test_a_stopped_run_judges_its_costs(tmp_path, cache, monkeypatch, seconds, stays):
    job = Job(tmp_path / "run", model=Slowing, steps=STEPS, ram="1MiB", disk=tmp_path / "disk")
    Job(tmp_path / "first", model=Slowing, steps=STEPS, ram="1MiB", disk=tmp_path / "disk").run()
    monkeypatch.setattr(Slowing, "seconds", seconds)
    monkeypatch.setattr(Slowing, "stops_at", 10)
    with pytest.raises(Halted):
        job.run()
    assert any(cache.iterdir()) == stays


@pytest.mark.parametrize(("seconds", "stays"), [(0.0, True), (0.02, False)])
def test_a_resumed_run_judges_its_costs(tmp_path, cache, monkeypatch, seconds, stays):
    job = Job(tmp_path / "run", model=Slowing, steps=STEPS, ram="1MiB", disk=tmp_path / "disk")
    Job(tmp_path / "first", model=Slowing, steps=STEPS, ram="1MiB", disk=tmp_path / "disk").run()
    monkeypatch.setattr(Slowing, "stops_at", 1)
    with pytest.raises(Halted):
        job.run()
    assert any(cache.iterdir())
    monkeypatch.setattr(Slowing, "stops_at", -1)
    monkeypatch.setattr(Slowing, "seconds", seconds)
    assert np.isfinite(job.run().functional)
    assert any(cache.iterdir()) == stays


def sealed(data: object) -> bytes:
    text = json.dumps(data)
    return f"{xxhash.xxh3_128_hexdigest(text.encode())}\n{text}".encode()


def test_costs_that_are_old_or_damaged_are_not_used(cache, monkeypatch):
    known = Known.of(kind(), 10)
    known.keep(PLATFORM, 10)
    whole = known.file.read_bytes()
    assert list(cache.iterdir()) == [known.file]
    _, _, text = whole.partition(b"\n")
    other = sealed(json.loads(text) | {"kind": {}})
    no_model = sealed(json.loads(text) | {"platform": Platform(()).dumps()})
    flipped = whole.replace(b"tape = 4", b"tape = 5")
    assert flipped != whole
    for damaged in (b"", whole[:-40], b"[]", sealed({}), other, no_model, b"\xff", flipped, text):
        known.file.write_bytes(damaged)
        assert Known.of(kind(), 10).platform is None
    known.file.write_bytes(whole)
    assert Known.of(kind(), 10).platform is not None
    now = time.time()
    for later in (-10.0, 31 * 86400.0):
        monkeypatch.setattr("time.time", lambda later=later: now + later)
        assert Known.of(kind(), 10).platform is None


def test_a_cache_that_cannot_be_written_fails_no_run(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CKIO_CACHE", str(tmp_path / "file"))
    Known.of(kind(), 10).keep(PLATFORM, 10)
    monkeypatch.setenv("CKIO_CACHE", "off")
    assert Known.of(kind(), 10) is None


def test_the_code_of_two_functions_is_that_of_their_file(tmp_path):
    """Two files have functions of the same names and sizes."""

    def model(text):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.py"
        path.write_text(FUNCTIONS.format(text=text))
        return find_model(str(path))

    assert code_of(model("one")) != code_of(model("another"))
    assert code_of(partial(Burgers)) == code_of(Burgers)


def test_modules_beside_a_model_are_part_of_its_code(tmp_path):
    """`model.py` imports `law.py`, which imports the package `data`; nobody imports `other.py`."""
    texts = {
        "model.py": "import numpy\nfrom law import viscosity\n\ndef make(): ...\n",
        "law.py": "def viscosity():\n    from .data import table\n",
        "data/__init__.py": "table = 1\n",
        "other.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    module = {"__name__": "model"}
    exec(compile("def make(): ...", tmp_path / "model.py", "exec"), module)
    before = code_of(module["make"])
    (tmp_path / "other.py").write_text("changed = 1\n")
    assert code_of(module["make"]) == before
    for name in ("model.py", "law.py", "data/__init__.py"):
        (tmp_path / name).write_text(texts[name] + "changed = 1\n")
        assert code_of(module["make"]) != before
        (tmp_path / name).write_text(texts[name])
    assert code_of(module["make"]) == before
