"""The manifest of a run that was begun, and a run directory with nothing but that and its plan."""

from dataclasses import replace
from pathlib import Path

from ckio.jobs.directory import MANIFEST as NAME
from ckio.jobs.directory import SCHEDULE, sealed
from ckio.jobs.request import Manifest, Request
from ckio.platform.chain import Chain
from ckio.schedule.policy import SYNCHRONOUS

CHAIN = Chain(steps=3, advance=0.1, record=0.3, reverse=1 / 3, restart=8, tape=16, adjoint=24)
REQUEST = Request(
    model="m",
    settings={"grid": 4, "wind": 0.1, "name": "a b", "on": True},
    steps=3,
    planner="periodic:period=2",
    overlap=SYNCHRONOUS,
)
MANIFEST = Manifest(
    run="deadcafe",
    ckio="1",
    request=REQUEST,
    control="dead",
    chain=CHAIN,
    platform="beef",
    adjoints="nvme",
    every=1 / 3,
)


def begun(at: Path, level: list[str]) -> Path:
    """The directory of a run called deadcafe, with one level that these lines of TOML describe."""
    run = at / "run"
    run.mkdir()
    (run / NAME).write_text(sealed(replace(MANIFEST, here="..").dumps()))
    platform = "format = 1", "[[level]]", 'name = "far"', *level
    headers = "".join(f"#| {line}\n" for line in platform)
    (run / SCHEDULE).write_text(sealed(f"# ckio schedule 1\n{headers}"))
    return run
