"""What a traced value is: the plain one, its memory, and where its cotangent is gathered."""

from typing import TYPE_CHECKING, Any

from ckio.programs.tape.adjoint import Place
from ckio.programs.tape.memory import Cell, View

if TYPE_CHECKING:
    from ckio.programs.tape.tape import Tape


class Value:
    """A plain number or array on a tape; what can be done with it is in `traced`.

    Attributes
    ----------
    held : the plain value, which may be out of date: see `value`
    cell : its memory; None of numbers
    lies : how it lies there
    seen : the memory that `held` lies in
    """

    __slots__ = ("_place", "cell", "held", "lies", "seen", "tape")

    def __init__(
        self, tape: "Tape", value: Any, place: Any, cell: Cell | None = None, view: Any = None
    ) -> None:
        self.tape = tape
        self.held = value
        self._place = place
        self.cell = cell
        self.lies: View | None = view
        if cell is not None:
            self.seen: Any = cell.memory

    @property
    def value(self) -> Any:
        """The plain number or array."""
        cell = self.cell
        if cell is not None and self.seen is not cell.memory:
            assert self.lies is not None
            self.held = self.lies.on(cell.memory)
            if not self.lies.writeable:
                self.held.flags.writeable = False
            self.seen = cell.memory
        return self.held

    @property
    def place(self) -> Any:
        """Where its cotangent is gathered; None if it has none."""
        if self.cell is None:
            return self._place
        if self.cell.slot is None or self.lies is None:
            return None
        if self._place is None:
            self._place = Place(self.cell.slot, self.lies)
        return self._place
