"""What a traced value is: the plain one, its memory, and where its cotangent is gathered."""

from typing import TYPE_CHECKING, Any

from ckio.programs.tape.adjoint import Place
from ckio.programs.tape.memory import Cell, View, view_in

if TYPE_CHECKING:
    from ckio.programs.tape.tape import Tape


class Value:
    """A plain number or array on a tape; what can be done with it is in `traced`.

    Attributes
    ----------
    held : the plain value, which may be out of date: see `value`
    cell : its memory; None of numbers
    seen : the memory that `held` lies in
    """

    __slots__ = ("_lies", "_place", "cell", "held", "seen", "tape")

    def __init__(
        self, tape: "Tape", value: Any, place: Any, cell: Cell | None = None, lies: Any = None
    ) -> None:
        self.tape = tape
        self.held = value
        self._place = place
        self.cell = cell
        if cell is not None:
            self._lies: View | None = lies
            self.seen: Any = cell.memory

    @property
    def value(self) -> Any:
        """The plain number or array."""
        cell = self.cell
        if cell is not None and self.seen is not cell.memory:
            lies = self.lies
            self.held = lies.on(cell.memory)
            if not lies.writeable:
                self.held.flags.writeable = False
            self.seen = cell.memory
        return self.held

    @property
    def lies(self) -> View:
        """How the array lies in its memory: found out when it is asked for."""
        if self._lies is None:
            cell, seen = self.cell, self.seen
            assert cell is not None
            self._lies = cell.lies(self.held) if seen is cell.memory else view_in(seen, self.held)
        return self._lies

    @property
    def place(self) -> Any:
        """Where its cotangent is gathered; None if it has none."""
        if self._place is None and self.cell is not None and self.cell.slot is not None:
            self._place = Place(self.cell.slot, self.lies)
        return self._place
