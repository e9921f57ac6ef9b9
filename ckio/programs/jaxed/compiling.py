"""What both ways to run a program of JAX share: functions that are compiled once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from ckio.analysis.partitioned.jaxprs import jax
from ckio.programs.jaxed.code import Code
from ckio.programs.jaxed.ticks import active


@dataclass(frozen=True)
class Compiling:
    """A program's code, and what has been compiled of it.

    Attributes
    ----------
    code : Code
    base : int
        Ticks of which the inputs are stored at a time.
    """

    code: Code
    base: int
    _compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def active(self) -> frozenset[str]:
        """The registers that have cotangents."""
        return active(self.code)

    def _zero(self, name: str) -> Any:
        key = ("zero", name)
        if key not in self._compiled:
            aval = self.code.avals[name]
            self._compiled[key] = jax().numpy.zeros(aval.shape, aval.dtype)
        return self._compiled[key]

    def _compile(self, key: tuple[Any, ...], make: Callable[..., Any]) -> Callable[..., Any]:
        if key not in self._compiled:
            self._compiled[key] = jax().jit(partial(make, *key[1:]))
        found: Callable[..., Any] = self._compiled[key]
        return found
