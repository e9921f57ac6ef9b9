"""How much memory this machine can still give."""

from pathlib import Path


def available() -> int | None:
    """Bytes that can be had without swapping, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return None
