"""Conversion of schedules between ckio and checkpoint_schedules, in both directions."""

from ckio.adapters.checkpoint_schedules.inward import from_checkpoint_schedule
from ckio.adapters.checkpoint_schedules.outward import CkioSchedule, as_checkpoint_schedule

__all__ = ["CkioSchedule", "as_checkpoint_schedule", "from_checkpoint_schedule"]
