"""Which files are not looked at: adapters of frameworks that are not installed here.

And what all processes of the tests share: the bytecode of ckio.
"""

import compileall
from importlib.util import find_spec
from pathlib import Path

_NEEDED = {
    "checkpoint_schedules": ["checkpoint_schedules"],
    "jax": ["jax"],
    "pyadjoint": ["pyadjoint", "checkpoint_schedules"],
    "pyrevolve": ["pyrevolve"],
    "torch": ["torch"],
}
"""What each adapter imports; others import theirs when they are used."""

collect_ignore_glob = [
    f"ckio/adapters/{adapter}{where}"
    for adapter, needed in _NEEDED.items()
    if not all(map(find_spec, needed))
    for where in ("/*", ".py")
]


def pytest_configure() -> None:
    """Compile ckio once: where no bytecode is kept, hundreds of processes would each do it."""
    compileall.compile_dir(Path(__file__).with_name("ckio"), quiet=2)
