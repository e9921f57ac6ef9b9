"""tlm_adjoint's loop with a schedule of ckio: the gradient is that of a run that stores everything.

tlm_adjoint is installed from its repository; it also needs JAX and MPI.
"""

import jax
import tlm_adjoint as tlm
from tlm_adjoint.checkpoint_schedules.checkpoint_schedules import translation

from ckio import Chain, Level, Platform
from ckio.adapters.checkpoint_schedules import as_checkpoint_schedule
from ckio.planners import hrevolve

jax.config.update("jax_enable_x64", True)
STEPS = 50
CHAIN = Chain(steps=STEPS, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
PLATFORM = Platform((Level(name="ram", capacity=24), Level(name="disk", capacity=48)), 16)


def gradient(method, parameters):
    tlm.reset_manager()
    tlm.configure_checkpointing(method, parameters)
    tlm.start_manager()
    u = control = tlm.Float(0.1)
    for i in range(STEPS):
        u = u + 0.1 * u * (1 - u)
        if i < STEPS - 1:
            tlm.new_block()
    functional = u * u
    tlm.stop_manager()
    return float(tlm.compute_gradient(functional, control))


def planned():
    return as_checkpoint_schedule(hrevolve(CHAIN, PLATFORM), PLATFORM)


if __name__ == "__main__":
    print(gradient("memory", {}), gradient(translation(planned), {"path": "checkpoints"}))
