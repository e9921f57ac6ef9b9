"""To be reported to pyadjoint: after a new control, checkpointed gradients can be wrong.

With pyadjoint-ad 2026.10.0 and checkpoint_schedules 1.0.4, this program's gradient is 19 times too
large with Revolve and Multistage, and twice too large with Mixed, without any error. It is right
without a schedule, with SingleMemory, and always at the first control. When the manager computes a
step again to reverse it, it drops the checkpoints of the step's inputs before the adjoint of the
step asks for them. A block then gets the value of the program's own object, which is that of the
first recording.
"""

import checkpoint_schedules as cs
from pyadjoint import (
    AdjFloat,
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    get_working_tape,
    pause_annotation,
    set_working_tape,
)
from pyadjoint.block import Block
from pyadjoint.overloaded_type import OverloadedType

STEPS, SLOTS = 30, 5


class State(OverloadedType):
    """A number."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def _ad_create_checkpoint(self):
        return State(self.value)

    def _ad_restore_at_checkpoint(self, checkpoint):
        return checkpoint

    def _ad_convert_riesz(self, value, riesz_map=None):
        return State(value)


class Step(Block):
    """The step from u to u + u (1 - u) / 10, or u**2 as an AdjFloat."""

    def __init__(self, u, *, last=False):
        super().__init__()
        self.last = last
        self.add_dependency(u)

    def recompute_component(self, inputs, block_variable, idx, prepared):
        u = inputs[0].value
        return AdjFloat(u**2) if self.last else State(u + 0.1 * u * (1 - u))

    def evaluate_adj_component(self, inputs, adj_inputs, block_variable, idx, prepared=None):
        u = inputs[0].value
        return adj_inputs[0] * (2 * u if self.last else 1.1 - 0.2 * u)


def apply(u, *, last=False):
    block = Step(u, last=last)
    made = block.recompute_component([u], None, 0, None)
    get_working_tape().add_block(block)
    block.add_output(made.create_block_variable())
    return made


def gradient(schedule, *controls):
    """Return dJ/du_0 at the last of these controls; the program is recorded with the first."""
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    if schedule is not None:
        tape.enable_checkpointing(schedule)
    u = control = State(controls[0])
    for _ in tape.timestepper(iter(range(STEPS))):
        u = apply(u)
    reduced = ReducedFunctional(apply(u, last=True), Control(control), tape=tape)
    pause_annotation()
    for value in controls[1:]:
        reduced(State(value))
    return reduced.derivative().value


def main():
    right = gradient(None, 0.6)
    for name, make in {
        "no schedule": lambda: None,
        "SingleMemory": cs.SingleMemoryStorageSchedule,
        "Revolve": lambda: cs.Revolve(STEPS, SLOTS),
        "Multistage": lambda: cs.MultistageCheckpointSchedule(STEPS, SLOTS, 0),
        "Mixed": lambda: cs.MixedCheckpointSchedule(STEPS, SLOTS, storage=cs.StorageType.RAM),
    }.items():
        first, new = gradient(make(), 0.6), gradient(make(), 0.1, 0.6)
        print(
            f"{name:>12}: {first / right:.3f} times the gradient at first, {new / right:.3f} after"
        )


if __name__ == "__main__":
    main()
