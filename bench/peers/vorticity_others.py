"""The rows of `vorticity` that are others': by pyrevolve, by pyadjoint and by tlm_adjoint.

Each is given its best deal. pyrevolve copies a state to a slot and from it. pyadjoint makes a new
state in each step and holds references to states that nobody changes, so that it copies nothing to
slots in memory. What it holds is more than its slots: where a step is computed again to be taken
back, its manager drops the state before the adjoint asks for it, and uses that of the program's
own object. So the gradient is right only for programs that give each step an object of its own, as
this one does, and these all stay. It is spared the derivative by the wind, which the model's own
adjoint step adds up. tlm_adjoint has arrays of JAX as variables, and is told that a step's adjoint
reads the tape alone; it is spared the derivatives by the wind and by the state, too.
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.vorticity_rows import TAPE, Row, Work, copied
from ckio.model.arrays import Arrays


def by_pyrevolve(work: Work) -> dict[str, Any]:
    peer = importlib.import_module("pyrevolve")
    task, state = work.task, work.state
    arrays = [array.reshape(-1) for array in state.values()]
    kept, seeded = [state], [False]

    class Slots(peer.Checkpoint):  # type: ignore[misc,name-defined]
        dtype = np.float64
        size = sum(array.size for array in arrays)

        def get_data(self, timestep: int) -> list[Any]:
            work.moved += work.nbytes
            return arrays

        get_data_location = get_data

    class Forward(peer.Operator):  # type: ignore[misc,name-defined]
        def apply(self, t_start: int, t_end: int) -> None:
            for i in range(t_start, t_end):
                if i == t_end - 1:  # it may be the step that is reversed next
                    kept[0] = copied(state, TAPE)
                work.step(state, i)

    class Back(peer.Operator):  # type: ignore[misc,name-defined]
        def apply(self, t_start: int, t_end: int) -> None:
            if not seeded[0]:
                seeded[0] = True
                work.seed(state)
            work.back(kept[0], t_start)

    operators = Slots(), Forward(), Back()

    def revolver() -> Any:
        if not task.disk:
            return peer.SingleLevelRevolver(*operators, task.slots, task.steps)
        profiler, size = peer.Profiler(), Slots.size
        near = peer.NumpyStorage(size, task.slots, Slots.dtype, profiler=profiler)
        options = {"filedir": f"{task.place}/", "singlefile": False, "wd": 2, "rd": 2}
        far = peer.DiskStorage(size, task.disk, Slots.dtype, profiler=profiler, **options)
        levels = {"storage_list": [near, far], "profiler": profiler}
        return peer.MultiLevelRevolver(*operators, task.steps, **levels)

    made = work.planned(revolver)
    made.apply_forward()
    made.apply_reverse()
    return work.gradient()


def by_pyadjoint(work: Work) -> dict[str, Any]:
    peer, schedules = map(importlib.import_module, ("pyadjoint", "checkpoint_schedules"))
    Overloaded = importlib.import_module("pyadjoint.overloaded_type").OverloadedType  # noqa: N806
    tapes = importlib.import_module("pyadjoint.tape")
    task = work.task

    class Files(tapes.TapePackageData):  # type: ignore[misc,name-defined]
        """Where states go while pyadjoint says that they go to disk."""

        on, made = False, 0

        def continue_checkpointing(self) -> None:
            self.on = True

        def pause_checkpointing(self) -> None:
            self.on = False

        def copy(self) -> Any:
            return self

        def checkpoint(self) -> None: ...
        def clear(self) -> None: ...
        def reset(self) -> None: ...
        def restore_from_checkpoint(self, _state: object) -> None: ...

    files = Files()

    class Stored(Overloaded):  # type: ignore[misc,valid-type]
        """A state in a file, which goes when pyadjoint lets go of it."""

        def __init__(self, state: Arrays) -> None:
            super().__init__()
            files.made += 1
            self.path = Path(task.place) / f"{files.made}.npz"
            np.savez(self.path, allow_pickle=False, **state)
            work.moved += work.nbytes

        def _ad_restore_at_checkpoint(self, _checkpoint: object) -> Any:
            return self.restored()

        def restored(self) -> Any:
            with np.load(self.path) as found:
                work.moved += work.nbytes
                return State(Arrays({name: found[name] for name in work.state}))

        def __del__(self) -> None:
            self.path.unlink(missing_ok=True)

    class State(Overloaded):  # type: ignore[misc,valid-type]
        def __init__(self, arrays: Arrays) -> None:
            super().__init__()
            self.arrays = arrays

        def _ad_create_checkpoint(self) -> Any:
            return Stored(self.arrays) if files.on else self

        def _ad_restore_at_checkpoint(self, checkpoint: Any) -> Any:
            found = checkpoint
            return found.restored() if isinstance(found, Stored) else found

        def _ad_convert_riesz(self, value: Any, riesz_map: object = None) -> Any:
            return value

        def _ad_copy(self) -> Any:
            return State(copied(self.arrays))

    def stepped(state: Any, i: int) -> Any:
        arrays = copied(state.arrays)
        work.step(arrays, i)
        return State(arrays)

    class Step(peer.Block):  # type: ignore[misc,name-defined]
        def __init__(self, state: Any, i: int) -> None:
            super().__init__()
            self.add_dependency(state)
            self.i = i

        def recompute_component(self, inputs: Any, *_: Any) -> Any:
            return stepped(inputs[0], self.i)

        def evaluate_adj_component(self, inputs: Any, adj_inputs: Any, *_: Any, **__: Any) -> Any:
            assert adj_inputs[0] is work.adjoint  # which is handed on, changed in place
            work.back(inputs[0].arrays, self.i)
            return work.adjoint

    class End(peer.Block):  # type: ignore[misc,name-defined]
        def __init__(self, state: Any) -> None:
            super().__init__()
            self.add_dependency(state)

        def recompute_component(self, *_: Any) -> Any:
            return peer.AdjFloat(work.functional)

        def evaluate_adj_component(self, *_: Any, **__: Any) -> Any:
            return work.adjoint

    def schedule() -> Any:
        if task.disk:
            return schedules.MultistageCheckpointSchedule(task.steps, task.slots, task.disk)
        return schedules.Revolve(task.steps, task.slots)

    tape = peer.Tape()
    peer.set_working_tape(tape)
    peer.continue_annotation()
    tape._package_data["files"] = files  # noqa: SLF001 - there is no other door
    tape.enable_checkpointing(work.planned(schedule))
    state = first = State(work.state)
    control = peer.Control(first)
    for i in tape.timestepper(iter(range(task.steps))):
        block, state = Step(state, i), stepped(state, i)
        tape.add_block(block)
        block.add_output(state.create_block_variable())
    work.seed(state.arrays)
    block, value = End(state), peer.AdjFloat(work.functional)
    tape.add_block(block)
    block.add_output(value.create_block_variable())
    peer.pause_annotation()
    peer.ReducedFunctional(value, control).derivative()
    return work.gradient()


def by_tlm_adjoint(work: Work) -> dict[str, Any]:
    """Maddison's own manager: his mixed schedule in memory, multistage where there is a disk."""
    importlib.import_module("jax").config.update("jax_enable_x64", True)
    peer = importlib.import_module("tlm_adjoint")
    kinds = importlib.import_module("tlm_adjoint.checkpoint_schedules")
    task, names = work.task, (TAPE, tuple(name for name in work.state if name not in TAPE))
    spaces = [peer.VectorSpace(sum(work.state[name].size for name in part)) for part in names]
    zeros = [peer.Vector(space, space_type="conjugate_dual") for space in spaces]
    for zero in zeros:
        peer.var_assign(zero, 0.0)

    def variables() -> list[Any]:
        return list(map(peer.Vector, spaces))

    def put(vectors: Any) -> None:
        for vector, part in zip(vectors, names, strict=True):
            flat = np.concatenate([work.state[name].ravel() for name in part])
            peer.var_set_values(vector, flat)

    def get(vectors: Any, into: Arrays) -> None:
        for vector, part in zip(vectors, names, strict=False):
            flat, begin = np.asarray(vector.vector), 0
            for name in part:
                into[name].reshape(-1)[:] = flat[begin : begin + into[name].size]
                begin += into[name].size

    class Step(peer.Equation):  # type: ignore[misc,name-defined]
        """Its adjoint is `work.adjoint`, changed in place: of others, only that they are not 0."""

        def __init__(self, new: Any, old: Any, i: int) -> None:
            super().__init__(new, [*new, *old], nl_deps=old[:1], ic=False, adj_ic=False)
            self.i = i

        def forward_solve(self, X: Any, deps: Any = None) -> None:  # noqa: N803
            get((self.dependencies() if deps is None else deps)[2:], work.state)
            work.step(work.state, self.i)
            put(X)

        def adjoint_jacobian_solve(self, adj_X: Any, nl_deps: Any, B: Any) -> Any:  # noqa: N803
            get(nl_deps, tape)
            work.back(tape, self.i)
            return B

        def subtract_adjoint_derivative_actions(self, _x: Any, _nl: Any, dep_Bs: Any) -> None:  # noqa: N803
            for index, right in dep_Bs.items():
                right.sub(zeros[index - 2])

    class End(peer.Equation):  # type: ignore[misc,name-defined]
        def __init__(self, value: Any, state: Any) -> None:
            super().__init__(value, [value, *state], nl_deps=[], ic=False, adj_ic=False)

        def forward_solve(self, X: Any, deps: Any = None) -> None:  # noqa: N803
            work.seed(work.state)
            peer.var_assign(X, work.functional)

        def adjoint_jacobian_solve(self, adj_X: Any, nl_deps: Any, B: Any) -> Any:  # noqa: N803
            return B

        def subtract_adjoint_derivative_actions(self, _x: Any, _nl: Any, dep_Bs: Any) -> None:  # noqa: N803
            for index, right in dep_Bs.items():
                right.sub(zeros[index - 1])

    def schedule() -> Any:
        if task.disk:
            kind, slots = kinds.MultistageCheckpointSchedule, (task.slots, task.disk)
            return kind(task.steps, *slots, trajectory="maximum")
        return kinds.MixedCheckpointSchedule(task.steps, task.slots, storage="RAM")

    tape = copied(work.state, TAPE)
    made = work.planned(schedule)
    peer.reset_manager(lambda: made, {"path": task.place})
    peer.start_manager()
    state = first = variables()
    put(first)
    for i in range(task.steps):
        old, state = state, variables()
        Step(state, old, i).solve()
        if i < task.steps - 1:
            peer.new_block()
    value = peer.Float(0.0)
    End(value, state).solve()
    peer.stop_manager()
    peer.compute_gradient(value, first)
    return work.gradient()


THEIRS: dict[str, Row] = {
    "pyrevolve": by_pyrevolve,
    "pyadjoint": by_pyadjoint,
    "tlm_adjoint": by_tlm_adjoint,
}
WHERE = {
    "pyrevolve": "ckio[peers]",
    "pyadjoint": "ckio[peers]",
    "tlm_adjoint": "from its repository, as the package index has none; it also needs JAX and MPI",
}
