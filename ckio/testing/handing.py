"""Tests of models that hand checkpoints over, and of levels that keep them where they are."""

from abc import abstractmethod
from typing import Any

import pytest

from ckio.actions import Key, Kind
from ckio.errors import BadInput
from ckio.model import Handing
from ckio.testing.checkpoints import save


def new_memory(nbytes: int, /) -> memoryview:
    """Memory that nobody else has."""
    return memoryview(bytearray(nbytes))


class HandingTests:
    """Every promise of `Handing`. Subclass it, and say in `make` how to make a fresh model.

    The model has at least three steps.
    """

    @abstractmethod
    def make(self) -> Any:
        """A fresh model, at x_0."""

    def test_it_says_what_it_hands_over(self) -> None:
        model = self.make()
        assert isinstance(model, Handing)
        assert model.handed
        assert model.handed <= set(Kind)

    @pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
    def test_what_it_gives_is_the_checkpoint_and_stays_as_it_is(self, kind: Kind) -> None:
        model = self._handing(kind)
        key = self._at_step_one(model, kind)
        before = save(model, key)
        given = model.give(key, new_memory)
        assert [bytes(view) for view in given] == before == save(model, key)
        again = model.give(key, new_memory)
        model.record(2, 3) if kind is Kind.TAPE else model.record(1, 3)
        assert [bytes(view) for view in given] == [bytes(view) for view in again] == before

    @pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
    def test_it_takes_what_it_gave(self, kind: Kind) -> None:
        model = self._handing(kind)
        key = self._at_step_one(model, kind)
        given = model.give(key, new_memory)
        before = [bytes(view) for view in given]
        model.record(2, 3) if kind is Kind.TAPE else model.record(1, 3)
        if kind is Kind.TAPE:
            model.reverse(2, 3)
        model.take(key, model.layout(key), given)
        assert save(model, key) == before
        if kind is Kind.RESTART:
            model.record(1, 3)
            assert [bytes(view) for view in given] == before

    @pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
    def test_another_layout_is_refused_and_changes_nothing(self, kind: Kind) -> None:
        model = self._handing(kind)
        key = self._at_step_one(model, kind)
        before = save(model, key)
        with pytest.raises(BadInput):
            model.take(key, (), [])
        assert save(model, key) == before

    def _handing(self, kind: Kind) -> Any:
        model = self.make()
        if kind not in model.handed:
            pytest.skip(f"it hands no {kind.name.lower()} checkpoints over")
        return model

    def _at_step_one(self, model: Any, kind: Kind) -> Key:
        model.advance(0, 1)
        if kind is Kind.TAPE:
            model.record(1, 2)
        return Key(kind, 1)
