"""The two sweeps of a gradient outside `jax.jit`: blocks are compiled, Python does what is between.

JAX computes while Python stores: a state is written while the block after it is under way, and read
while the block before it is. So nothing waits for a level that is as fast as the steps.
"""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import jax

from ckio.adapters.jax.blocks import Back, Blocks, Given, Leaves, is_key
from ckio.adapters.jax.plans import Op, Plan, Row
from ckio.adapters.jax.store import Run

_At = tuple[Leaves, Leaves, Back]
"""The first state of the block to be reversed next, the state, and cotangents."""

_wait: Any = jax.block_until_ready


class Held:
    """A gradient that waits for its way back, as long as somebody may ask for that.

    JAX carries it along in the structure of what the way back needs, as it holds no arrays.
    """

    def __init__(self, run: Run | None, /) -> None:
        self._runs = [run]

    def take(self) -> Run | None:
        """What it is; nothing if it has been taken."""
        try:
            return self._runs.pop()
        except IndexError:
            return None


jax.tree_util.register_pytree_node(Held, lambda held: ((), held), lambda held, _: held)


def is_traced(*trees: Any) -> bool:
    """Whether JAX only wants to know what would be done with some of these."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


class Drive:
    """The sweeps over some blocks; `drive_of` makes it."""

    def __init__(self, blocks: Blocks, /) -> None:
        self._blocks = blocks

    @cached_property
    def advance(self) -> Callable[..., Leaves]:
        """`Blocks.advance`, compiled."""
        advance: Callable[..., Leaves] = jax.jit(self._blocks.advance)
        return advance

    @cached_property
    def reverse(self) -> Callable[..., Back]:
        """`Blocks.reverse_of`, compiled; uses up the cotangents that it is given."""
        reverse: Callable[..., Back] = jax.jit(
            self._blocks.reverse_of, static_argnums=0, donate_argnums=4
        )
        return reverse

    def forward(self, plan: Plan, x: Leaves, given: Given, /) -> tuple[Run | None, Leaves, Leaves]:
        """The levels of it, the first state of the last block, and x_n; raises StorageError."""
        run = Run(plan) if plan.slots else None
        kept, end, _ = self._walk(plan.forward, run, given, (x, x, Back([], [], [])))
        return run, kept, end

    def backward(
        self, plan: Plan, run: Run | None, kept: Leaves, given: Given, back: Back, /
    ) -> Back:
        """The cotangents in the end, of those that it begins with, which are used up."""
        return self._walk(plan.backward, run, given, (kept, kept, back))[2]

    def _walk(self, rows: tuple[Row, ...], run: Run | None, given: Given, at: _At) -> _At:
        """Do what each row says; levels are closed where one of them fails, or is interrupted."""
        kept, x, back = at
        late: list[tuple[int, Leaves]] = []  # writes, until JAX has something else to do

        def write() -> None:
            while late:
                access, leaves = late.pop()
                _levels(run).put(access, _plain(leaves))

        try:
            for op, begin, end in rows:
                match op:
                    case Op.ADVANCE:
                        x = self.advance(x, given, begin, end)
                        write()
                    case Op.KEEP:
                        kept = x
                    case Op.WRITE:
                        write()
                        late.append((end, x))
                    case Op.READ:
                        write()
                        x = _as(x, _levels(run).get(end, _plain(x)))
                    case Op.REVERSE:
                        _wait(back)  # or all states would be read before one is needed
                        length = self._blocks.length(begin)
                        back = self.reverse(length, kept, given, begin, back)
            write()
        except BaseException:
            if run is not None:
                run.close()
            raise
        return kept, x, back


@lru_cache(maxsize=64)
def drive_of(blocks: Blocks, /) -> Drive:
    """The sweeps over these blocks, compiled once for all plans."""
    return Drive(blocks)


def _levels(run: Run | None) -> Run:
    assert run is not None, "a plan that stores something opens levels"
    return run


def _plain(leaves: Leaves) -> Leaves:
    """Arrays that NumPy understands."""
    return [jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves]


def _as(old: Leaves, bits: list[Any]) -> Leaves:
    """Arrays of JAX with these bits, where others are."""
    return [
        jax.random.wrap_key_data(new, impl=jax.random.key_impl(leaf))
        if is_key(leaf)
        else jax.device_put(new, leaf.sharding)
        for leaf, new in zip(old, bits, strict=True)
    ]
