"""What is to be expected of a run that fails, for a sweep: as `ckio failures` finds it."""

from dataclasses import dataclass

from ckio.cli.adjoints import Wish
from ckio.cli.failures import Asked, planned
from ckio.cli.plans import OVERLAPPED, Plan
from ckio.errors import BadInput
from ckio.schedule import Schedule
from ckio.sim.failures import Book, Mean, campaign, exponential
from ckio.sim.sweep import Question


@dataclass(frozen=True)
class Expected:
    """Answers for questions about runs that fail, all by the same failures; goes to processes.

    Attributes
    ----------
    restart : float
        Seconds from a failure until another process runs.
    runs : int
        Whose mean is taken.
    """

    restart: float
    runs: int

    def __call__(self, question: Question, /) -> tuple[Schedule, Mean]:
        """The first schedule, with adjoint checkpoints at Daly's interval, and the mean makespan.

        Raises BadInput for plans that do not fail here, and for runs that never come to their end.
        """
        if question.planner == OVERLAPPED:
            raise BadInput(f"mtbf: a run by {OVERLAPPED} overlaps, and none that fails does")
        plan = Plan(question.planner, question.chain, question.platform, question.call)
        plans, _ = planned(plan, Wish(None, question.mtbf), quiet=True)
        asked = Asked(process=question.mtbf, restart=self.restart)
        ways = tuple(asked.kinds(question.platform).values())
        book = Book(plans, question.platform)
        found = campaign(book, lambda run: exponential(ways, (0, run)), self.runs)
        return plans.first, found.expected
