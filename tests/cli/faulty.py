"""A wave on many ranks that fails where it is told to, and the words that run it."""

import re
from pathlib import Path

from cli.jobs import Job, write_platform

FAULTY = '''\
import os
import resource
import signal
import time

from ckio.model.comm import SOLO
from ckio.models.wave import Wave

RANK = os.environ.get("PMI_RANK", "0")
BAD, WHERE, WHAT = os.environ.get("HARM", "nobody:nowhere:raise").split(":")


def moment(where):
    """A moment of the run: HARM says on which rank something happens at one, and what."""
    if WHERE != where or BAD not in (RANK, "all"):
        return
    match WHAT:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "leave":
            os._exit(3)
        case "full" if not os.path.exists("run/manifest.json"):
            return  # a step is compared with that of the run before the run begins
        case "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        case "wait":
            open(RANK, "w").close()
            while not os.path.exists("go"):
                time.sleep(0.01)
        case _:
            raise ValueError("no wind")


moment("import")


class Faulty(Wave):
    def __init__(self, *, grid=32, comm=SOLO):
        moment("constructor")
        super().__init__(grid=grid, comm=comm)
        moment("late constructor")

    def start(self, state):
        moment("start")
        super().start(state)

    def finished(self, state, i):
        moment(f"finished {i}")
        return i == int(os.environ.get("END", "-1")) or super().finished(state, i)

    def step(self, state, i):
        moment(f"step {i}")
        time.sleep(float(os.environ.get("SLOW", 0)))
        super().step(state, i)

    def adjoint_start(self, adjoint):
        moment("adjoint_start")
        super().adjoint_start(adjoint)

    def adjoint_step(self, adjoint, tape, i):
        moment(f"adjoint_step {i}")
        super().adjoint_step(adjoint, tape, i)

    def dump(self, key):
        moment("dump")
        return super().dump(key)

    def load(self, key, layout):
        moment("load")
        return super().load(key, layout)

    @property
    def gradient(self):
        moment("gradient")
        return super().gradient
'''

WAVE = ("wave", "--planner", "hrevolve", "--set", "grid=32", "--steps", 60)
"""On two and on four ranks, parts of one size; on three, of 10 and of 11 rows."""

RESUME = ("run", "faulty:Faulty", "--resume", "--into", "run")


def prepared(at: Path, *more: object) -> tuple[object, ...]:
    """The words of a run of that model, in a directory with it and with a platform for it."""
    (at / "faulty.py").write_text(FAULTY)
    platform = write_platform(at, "faulty:Faulty")
    return ("run", "faulty:Faulty", *WAVE[1:], "--platform", platform, *more, "--into", "run")


def harm(rank: object, where: str, what: str = "raise", *, slow: float = 0) -> dict[str, str]:
    """The environment of a run in which this happens on that rank."""
    return {"HARM": f"{rank}:{where}:{what}", "SLOW": str(slow)}


def failed(ranks: int, *words: object, at: Path, status: int = 1, **more: str) -> str:
    """The last line that a job says which fails."""
    job = Job(ranks, *words, at=at, environ=more)
    return job.ended(status=status)[1].splitlines()[-1]


def edit_platform(at: Path, *changes: tuple[str, str]) -> None:
    """Replace these patterns in the platform file."""
    text = (at / "node.toml").read_text()
    for old, new in changes:
        text, count = re.subn(old, new, text)
        assert count
    (at / "node.toml").write_text(text)


def stored(at: Path) -> list[str]:
    """All that lies on levels, directories too."""
    paths = (*at.glob("scratch/**/*"), *at.glob("*.h5"))
    return sorted(str(path.relative_to(at)) for path in paths)
