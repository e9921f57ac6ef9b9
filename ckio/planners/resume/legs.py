"""The rest of a chain: which restart keys are kept, and which steps start from each of them.

A recurrence chooses the keys (`recurrence`). `hrevolve`, `mixed` or `varying` plan the steps
between two keys with the free space that other keys leave. If steps differ, or there are very many,
the recurrence is solved for equal blocks of steps, and every x_i is moved to the end of a block
that is the same fraction of the total seconds. Stored tapes directly below the adjoint are read and
reversed first. The other stored tapes are all kept or all dropped; those that are kept are read
when the adjoint reaches them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import count
from math import inf
from typing import Any

import numpy as np

from ckio.actions import Action, Advance, Key, Kind, Read, Reverse, Write
from ckio.actions.columns import DISCARD, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import without_notes
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.dp.spaces import Numbers, Space
from ckio.planners.draft import Draft
from ckio.planners.resume.recurrence import Blocks, Candidate, Leg, Stack, solve, spaces
from ckio.planners.resume.remainder import Remainder, Stored
from ckio.planners.trivial import recompute_all
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

_FIRST = Key(Kind.RESTART, 0)


def plans(rest: Remainder, /) -> Iterator[Actions]:
    """Yield several ways to finish, without Discards; none if there is no way."""
    for first, left in _begin(rest):
        if left.end == 0:
            yield Actions.of(first)
            continue
        for tapes in dict.fromkeys([(), left.tapes]):
            for actions in _Segments(replace(left, tapes=tapes)).plans():
                yield Actions.of(first) + actions


def _begin(rest: Remainder) -> Iterator[tuple[list[Action], Remainder]]:
    """Yield actions that reverse the stored tapes directly below the adjoint, and the remainder.

    If the adjoint has not started, these tapes can be used only after x_n was reached; therefore
    the remainder without them is also yielded.
    """
    m, tapes, actions = rest.steps, _quickest(rest), list[Action]()
    if rest.end > m:
        yield [], replace(rest, end=m, tapes=tuple(tape for tape in rest.tapes if tape[0] < m - 1))
        nearest = max((step, -level) for step, level in rest.restarts) if rest.restarts else (-1, 0)
        if rest.state is not None and rest.state >= nearest[0]:
            actions.append(Advance(rest.state, m))
        elif rest.restarts:
            actions.append(Read(Key(Kind.RESTART, nearest[0]), -nearest[1]))
            actions.append(Advance(nearest[0], m))
        if m - 1 not in tapes or not actions:
            return
        rest = replace(rest, state=None)
    while m - 1 in tapes:
        m -= 1
        actions += (Read(Key(Kind.TAPE, m), tapes[m]), Reverse(m, m + 1))
    state = rest.state if rest.state is not None and rest.state < m else None
    restarts, others = (
        tuple(key for key in keys if key[0] < m) for keys in (rest.restarts, rest.tapes)
    )
    yield actions, replace(rest, end=m, state=state, restarts=restarts, tapes=others)


def _quickest(rest: Remainder) -> dict[int, int]:
    """Return by step the level from which its tape is read fastest."""
    return dict(sorted(rest.tapes, key=lambda tape: -rest.seconds_to_read(Kind.TAPE, *tape)))


class _Segments:
    """From the stored keys to the recurrence, and back to actions; the adjoint has started."""

    def __init__(self, rest: Remainder) -> None:
        self.rest, self.platform = rest, _without(rest, Kind.TAPE, rest.tapes, rest.platform)
        self.tapes, self.planned = _quickest(rest), cache(self._planned)
        self.chain = self.alike = replace(rest.chain, variables=None).with_steps(rest.end)
        if self.chain.varies:
            mean = {name: self.chain.each(name).mean() for name in self.chain.costs}
            sizes = {name: int(np.rint(mean[name])) for name in ("restart", "tape", "adjoint")}
            self.alike = Chain(steps=rest.end, **{**mean, **sizes})
        self.held = max(1, self.platform.tapes(self.alike)) if rest.new_tapes else 1

    def plans(self) -> Iterator[Actions]:
        """Yield the plan that the recurrence chooses, and the plan from the first key alone."""
        given = spaces(self.alike, self.platform, held=self.held, new_tapes=self.rest.new_tapes)
        chosen = self._chosen(given) if given else []
        for legs in (chosen, self._first_key()):
            with suppress(NoSchedule, BadInput):
                yield self._by_planner(legs)

    def _chosen(self, given: Sequence[Space]) -> list[Leg]:
        """Return the legs that the recurrence chooses."""
        blocks = solve(given, self.rest.end, move=self.alike.advance, held=self.held)
        before = np.append(0.0, np.cumsum(self.chain.each("advance")))
        part = before / before[-1] if before[-1] else np.arange(len(before)) / self.rest.end
        at = np.rint(part * blocks.count).astype(np.intp)
        at[1:] = np.maximum(at[1:], 1)  # only x_0 is before the first block
        jumps = np.full(blocks.count + 1, inf)
        for step, level in self.tapes.items() if blocks.exact and not self.chain.varies else ():
            read = self.rest.seconds_to_read(Kind.TAPE, step, level)
            jumps[step + 1] = read - (self.chain.record - self.chain.saved)
        stack = Stack(self._keys(blocks, at), blocks, [*map(self._slots, given)], jumps)
        legs, end = list[Leg](), self.rest.end
        for leg in stack.best(None if self.rest.state is None else int(at[self.rest.state])):
            first = self.rest.state if leg.key is None else leg.key.step
            begin = max(first or 0, min(int(np.searchsorted(at, leg.begin)), end - 1))
            if begin < end:
                legs.append(Leg(leg.key, begin))
                end = begin
        return legs

    def _slots(self, space: Space) -> int:
        return self.platform.levels[space.number].slots(self.alike.restart, 2 * self.rest.end)

    def _keys(self, blocks: Blocks, at: Numbers) -> list[Candidate]:
        """Return all keys that may be kept, including the state in the register, by step."""
        places = {space.number: place for place, space in enumerate(blocks.spaces)}
        there = [key for key in self.rest.restarts if key[1] in places]
        keys = [
            Candidate(int(at[step]), step, level, places[level], self._read(step, level))
            for step, level in there
        ]
        if (step := self.rest.state) is not None:
            for level in (level for level in places if (step, level) not in there):
                write = self.rest.seconds_to_keep(Kind.RESTART, step, level)
                read = self._read(step, level)
                keys.append(Candidate(int(at[step]), step, level, places[level], read, write))
        return sorted(keys, key=lambda key: key[:3])

    def _read(self, step: int, level: int) -> float:
        return self.rest.seconds_to_read(Kind.RESTART, step, level)

    def _after_tapes(self, step: int) -> int:
        """Return the first step from this one on whose tape is not stored."""
        return next(after for after in count(step) if after not in self.tapes)

    def _first_key(self) -> list[Leg]:
        """Return the only leg if no key but the first is kept, or the state instead of it."""
        state, steps = self.rest.state, [step for step, _ in self.rest.restarts]
        if state is not None and state <= min(steps, default=state):
            return [Leg(None, self._after_tapes(state))]
        keys = [Candidate(s, s, k, 0, self._read(s, k)) for s, k in self.rest.restarts]
        first = min(keys, key=lambda key: (key.step, key.read), default=None)
        return [] if first is None else [Leg(first, self._after_tapes(first.step))]

    def _by_planner(self, legs: Sequence[Leg]) -> Actions:
        """Return the actions of all legs, each planned in the space that later legs leave free.

        Stored tapes are used when the adjoint reaches them. Raises NoSchedule if some steps are not
        reached, or if the keys that are kept do not fit.
        """
        platforms = self._platforms(legs)
        draft, end = Draft(), self.rest.end
        draft.lay(Actions.of(_write(legs)), (0,))
        for number, leg in enumerate(legs):
            if end > leg.begin:
                self._add(draft, leg, end, platforms[number])
                end = leg.begin
            while end - 1 in self.tapes:
                end -= 1
                draft.read(end, level=self.tapes[end], kind=Kind.TAPE)
                draft.reverse(end, end + 1)
        if end:
            raise NoSchedule(f"the steps before {end} cannot be reached; store x_0, too")
        return draft.actions()

    def _platforms(self, legs: Sequence[Leg]) -> list[Platform]:
        """Return for each leg the platform without the space of the keys and tapes of later legs.

        Raises NoSchedule if the keys of all legs do not fit.
        """
        left, kept = self.rest.platform, set[Candidate | None]()
        tapes, platforms = sorted(self.tapes.items(), reverse=True), list[Platform]()
        for leg in reversed(legs):
            below = list[Stored]()
            while tapes and tapes[-1][0] < leg.begin:
                below.append(tapes.pop())
            left = _without(self.rest, Kind.TAPE, below, left)
            platforms.append(left)
            if leg.key is not None and leg.key not in kept:
                left = _without(self.rest, Kind.RESTART, [leg.key[1:3]], left)
                kept.add(leg.key)
        return platforms[::-1]

    def _add(self, draft: Draft, leg: Leg, end: int, platform: Platform) -> None:
        """Add actions that read the key of a leg, advance, and reverse the steps of the leg."""
        begin, key = leg.begin, leg.key
        if key is not None:
            draft.read(key.step, level=key.level)
        state = self.rest.state if key is None else key.step
        if state is not None and state < begin:
            draft.advance(state, begin)
        source = key.level if key is not None and key.step == begin else None
        if not self.chain.varies:  # equal legs with equal free space are planned once
            sizes = self.chain.restart, self.chain.tape
            levels = [_at_most(level, end - begin, sizes) for level in platform.levels]
            actions = self.planned(0, end - begin, replace(platform, levels=tuple(levels)), source)
        else:
            actions = self.planned(begin, end, platform, source)
        if source is not None and actions[0] == Write(_FIRST, source):
            actions = actions[1:]  # x_begin is stored already
        draft.lay(actions, (begin,))

    def _planned(self, begin: int, end: int, platform: Platform, source: int | None) -> Actions:
        """Return the actions, without Discards, that reverse [begin, end); steps count from 0.

        If there is no plan and x_begin is stored on a read-only level, the `source`, all steps are
        recomputed from there.
        """
        chain = self.chain.with_steps(end)
        if begin:
            costs: dict[str, Any] = {name: chain.each(name)[begin:] for name in self.chain.costs}
            chain = Chain(steps=end - begin, handed=chain.handed, **costs)
        with without_notes():
            try:
                actions = (mixed if self.rest.new_tapes else hrevolve)(chain, platform).actions
            except NoSchedule:
                if source is None or not platform.levels[source].read_only:
                    raise
                lone = replace(platform.levels[source], read_only=False)
                levels = (*platform.levels[:source], lone, *platform.levels[source + 1 :])
                there = replace(platform, levels=levels)
                actions = recompute_all(chain, there, on=lone.name).actions
        return actions.take(actions.op != DISCARD)


def _at_most(level: Level, steps: int, sizes: tuple[int, int]) -> Level:
    """Return the level without a capacity if `steps` steps never fill it; else unchanged.

    Platforms that differ only in space that is not needed are then equal, and planned once.
    """
    most = steps * sum(level.stored(size) for size in sizes)  # each is rounded up by itself
    enough = level.capacity is None or level.capacity >= most
    return replace(level, capacity=None) if enough else level


def _write(legs: Sequence[Leg]) -> Iterator[Action]:
    """Yield Writes of the state in the register to every level from which a leg reads it."""
    for key in {leg.key for leg in legs if leg.key is not None and leg.key.write is not None}:
        yield Write(Key(Kind.RESTART, key.step), key.level)


def _without(rest: Remainder, kind: Kind, keys: Iterable[Stored], platform: Platform) -> Platform:
    """Return the platform without the space of these keys; raises NoSchedule if it is too small."""
    free = {number: level.capacity for number, level in enumerate(platform.levels)}
    for step, number in keys:
        if (left := free[number]) is not None:
            free[number] = left - platform.levels[number].stored(rest.nbytes(kind, step))
    if min((left for left in free.values() if left is not None), default=0) < 0:
        raise NoSchedule("the stored keys exceed the capacity of a level; leave out some of them")
    levels = (replace(level, capacity=free[k]) for k, level in enumerate(platform.levels))
    return replace(platform, levels=tuple(levels))
