"""Programs go on in another Python process: from any state, and where a run was killed."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from unknown_length import adaptive_burgers, tree

from ckio.programs import Options, checkpoint_vjp, primops

BURGERS = (1.0 + np.sin(np.linspace(0, 2 * np.pi, 24, endpoint=False)), 0.3, 1e-3)
YBAR = np.cos(np.arange(24.0))


def in_another_process(script: str, place: Path) -> int:
    """Run a script that may import the programs of this directory; return its exit status."""
    paths = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    return subprocess.run([sys.executable, "-c", paths + script], cwd=place, check=False).returncode


GO_ON = """
import pickle
from unknown_length import tree
with open("stored", "rb") as file:
    stored = pickle.load(file)
ends = [(p.advance(p.unpack(*packed)), p.pullback(p.unpack(*packed), 999, {"y": 1.0}))
        for p in (tree,) for packed in stored]
with open("found", "wb") as file:
    pickle.dump([(tree.result(end), ticks, bar) for (end, ticks, _), bar in ends], file)
"""


def test_a_program_goes_on_in_another_process_from_any_tick(tmp_path: Path) -> None:
    state = tree.start(0.7, 6)
    y, ticks = primops(tree, 0.7, 6)
    states = [state := tree.advance(state, 1)[0] for _ in range(ticks - 1)]
    (tmp_path / "stored").write_bytes(pickle.dumps([tree.pack(state) for state in states]))
    assert in_another_process(GO_ON, tmp_path) == 0
    found: list[Any] = pickle.loads((tmp_path / "found").read_bytes())
    assert len(found) == ticks - 1 > 20
    for n, (result, rest, bar) in enumerate(found, 1):
        assert (result, rest) == (y, ticks - n)
        assert bar == tree.pullback(states[n - 1], rest, {"y": 1.0})


KILLED = """
import os, signal
from ckio.programs import Options, checkpoint_vjp
from test_interrupts import BURGERS, YBAR, adaptive_burgers
events = []
def die(event):
    events.append(event)
    if len(events) == 12:
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint_vjp(adaptive_burgers, BURGERS, YBAR,
               Options(base=8, directory="run", every=0.0), watch=die)
"""


def test_a_gradient_that_is_killed_again_and_again_is_the_same(tmp_path: Path) -> None:
    """By processes that come twelve actions further each, on the way forward and back."""
    y, wanted = checkpoint_vjp(adaptive_burgers, BURGERS, YBAR, Options(base=8))
    for _ in range(3):
        assert in_another_process(KILLED, tmp_path) == -9
    options = Options(base=8, directory=tmp_path / "run", every=0.0)
    found, bars = checkpoint_vjp(adaptive_burgers, BURGERS, YBAR, options)
    assert found.tobytes() == y.tobytes()
    for bar, other in zip(bars, wanted, strict=True):
        assert np.asarray(bar).tobytes() == np.asarray(other).tobytes()
    assert not (tmp_path / "run").exists()
