"""A transfer that failed while the program was elsewhere."""

from dataclasses import dataclass
from traceback import format_exception_only

from ckio.errors import CkioError, RunFailed, StorageError
from ckio.overlap.rules import Transfer
from ckio.platform import Platform
from ckio.runner.perform import where


@dataclass(frozen=True, slots=True)
class Failure:
    """A transfer that failed, and the error that it ends the run with."""

    transfer: Transfer
    error: CkioError
    words: str

    @staticmethod
    def of(transfer: Transfer, error: BaseException) -> "Failure":
        if isinstance(error, CkioError):
            return Failure(transfer, error, str(error))
        words = " ".join(map(str.strip, format_exception_only(error)))
        failed = RunFailed(words)
        failed.__cause__ = error
        return Failure(transfer, failed, words)

    def named(self, platform: Platform) -> CkioError:
        """The error, which says what failed and where: not where the program was then."""
        row, action = self.transfer.row, self.transfer.action
        self.error.args = (f"#{row} {where(action, platform)}: {self.words}",)
        self.error.action = row
        if isinstance(self.error, StorageError):
            self.error.level = action.level
        return self.error
