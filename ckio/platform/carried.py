"""How frozen values with mappings go by pickle and copy, as from one process to another."""

from dataclasses import fields
from types import MappingProxyType
from typing import Any


class Carried:
    """A frozen dataclass with mappings that do not change, as pickle and copy can carry it.

    On arrival it is made anew, so that it is checked, and its mappings still do not change.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any], /) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _plain(value: object) -> object:
    """The same with dicts in place of mappings that pickle cannot carry."""
    if not isinstance(value, MappingProxyType):
        return value
    return {name: _plain(inner) for name, inner in value.items()}
