"""The values of a sweep's axes as a person writes them."""

from typing import Final

from ckio.platform.printed import bytes_text, seconds_text
from ckio.sim.sweep import Axis, Value

_TIMES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def value_text(axis: Axis, value: Value, /) -> str:
    """A value of an axis, with its unit."""
    if value is None or isinstance(value, str):
        return value or axis.endless
    match axis.knob.rpartition(".")[2]:
        case "capacity" | "working_memory" | "restart" | "tape" | "adjoint":
            return bytes_text(int(value))
        case "bandwidth":
            return _rate_text(int(value))
        case "latency" | "advance" | "record" | "reverse":
            return seconds_text(value)
        case "mtbf":
            return _time_text(value)
        case _:
            return str(value) if isinstance(value, int) else f"{value:.4g}"


def _rate_text(rate: int) -> str:
    """Bytes per second in the units in which drives are sold, powers of 1000."""
    power = min(4, (len(str(rate)) - 1) // 3)
    return f"{rate / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}/s"


def _time_text(seconds: float) -> str:
    """A long time in the unit in which it is easy to read, up to days."""
    for unit, sign in _TIMES:
        if seconds >= unit:
            return f"{seconds / unit:.4g} {sign}"
    return seconds_text(seconds)
