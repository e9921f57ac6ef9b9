"""Which files are not looked at: adapters of frameworks that are not installed here."""

from importlib.util import find_spec

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
