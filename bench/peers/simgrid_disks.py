"""Runs scenarios on SimGrid: its disks, its processors, and actors that know no rules of ckio's.

Read by the tests for what a scenario is, and run as a program by a python that has SimGrid: it
takes a scenario as JSON from standard input, and answers with an `Outcome` as JSON.

The program of a rank is one actor. Writes behind it are made by an actor for each level, and reads
ahead by one for each disk, which waits until what it is to read was written; semaphores keep count.
A mutex for each disk makes the transfers of a rank take turns; SimGrid shares a disk among ranks.
Copies to and from memory take no time.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

Word = tuple[str, int, int | str]
"""(advance, record or reverse, begin, end), or (write, read or discard, step, level)."""

SPEED = 1e9
"""Flops per second of every processor: what takes a second is so many flops."""

GRAINS = 1_000_000
"""What SimGrid is given for one byte: whenever anything begins or ends, it rounds what each
transfer has moved since the last time to a whole number of what it takes for bytes.
"""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A device: bytes per second of all its clients, and of one of them alone if that is less.

    `shared` by all ranks, or one for each.
    """

    read: float
    write: float
    shared: bool = False
    read_alone: float = 0.0
    write_alone: float = 0.0
    latency: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Ranks that do the same program, each slower by a factor.

    Attributes
    ----------
    disks : dict of str to Disk
    levels : dict of str to str
        The disk on which each level, by its name, is a directory.
    program : list of Word
    nbytes : int
        Of every checkpoint.
    seconds : dict of str to float
        Of one step: to advance, to record and to reverse it.
    factors : list of float
        One for each rank, on all that it computes.
    behind, ahead : int
        How many writes may be behind the program, and reads ahead of it; these from one disk.
    """

    disks: dict[str, Disk]
    levels: dict[str, str]
    program: list[Word]
    nbytes: int
    seconds: dict[str, float]
    factors: list[float] = field(default_factory=lambda: [1.0])
    behind: int = 0
    ahead: int = 0

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> "Scenario":
        fields = json.loads(text)
        fields["disks"] = {name: Disk(**disk) for name, disk in fields["disks"].items()}
        fields["program"] = [tuple(word) for word in fields["program"]]
        return Scenario(**fields)

    def source(self, row: int) -> int:
        """The write whose checkpoint is read in this row."""
        _, step, level = self.program[row]
        return max(at for at in range(row) if self.program[at] == ("write", step, level))


@dataclass
class Outcome:
    """For each rank, [begin, end] in seconds: of its words, and by row of its transfers."""

    program: list[list[tuple[float, float]]]
    transfers: list[dict[str, tuple[float, float]]]

    @staticmethod
    def loads(text: str) -> "Outcome":
        return Outcome(**json.loads(text))


class Rank:
    """One rank: the actor of its program, and those beside it."""

    def __init__(
        self, simgrid: Any, host: Any, disks: dict[str, Any], scenario: Scenario, factor: float
    ) -> None:
        self.simgrid, self.host, self.disks = simgrid, host, disks
        self.scenario, self.factor = scenario, factor
        self.behind = simgrid.Semaphore(scenario.behind)
        self.queues: dict[str, list[int | None]] = {name: [] for name in scenario.levels}
        self.queued = {name: simgrid.Semaphore(0) for name in scenario.levels}
        self.ahead = simgrid.Semaphore(scenario.ahead)
        self.turns = {name: simgrid.Mutex() for name in disks}
        rows = range(len(scenario.program))
        self.written = {r: simgrid.Semaphore(0) for r in rows if self.word(r) == "write"}
        self.ready = {r: simgrid.Semaphore(0) for r in rows if self.word(r) == "read"}
        self.spans: list[tuple[float, float]] = []
        self.transfers: dict[str, tuple[float, float]] = {}

    def word(self, row: int) -> str:
        return self.scenario.program[row][0]

    def disk(self, row: int) -> str:
        return self.scenario.levels[str(self.scenario.program[row][2])]

    def begin(self) -> None:
        """Bring its actors to life."""
        self.actor(self.perform)
        if self.scenario.behind:
            for level in self.scenario.levels:
                self.actor(self.write_behind, level)
        if self.scenario.ahead:
            for name in self.disks:
                self.actor(self.read_ahead, name)

    def actor(self, what: Any, *given: Any) -> None:
        if hasattr(self.host, "add_actor"):  # as of version 4.1
            self.host.add_actor(what.__name__, what, *given)
        else:
            self.simgrid.Actor.create(what.__name__, self.host, what, *given)

    def now(self) -> float:
        clock: float = self.simgrid.Engine.clock
        return clock

    def perform(self) -> None:
        """The program, one word after the other."""
        for row, (word, begin, end) in enumerate(self.scenario.program):
            since = self.now()
            match word:
                case "write" if self.scenario.behind:
                    self.behind.acquire()
                    self.queue(str(end), row)
                case "write":
                    self.transfer(row)
                case "read":
                    self.read(row)
                case "discard":
                    pass
                case _:
                    seconds = (int(end) - begin) * self.scenario.seconds[word]
                    self.simgrid.this_actor.execute(self.factor * seconds * SPEED)
            self.spans.append((since, self.now()))
        for level in self.scenario.levels:
            self.queue(level, None)

    def queue(self, level: str, row: int | None) -> None:
        """Give a write to the actor of its level; None: there are no more."""
        self.queues[level].append(row)
        self.queued[level].release()

    def write_behind(self, level: str) -> None:
        """The writes to one level, in the order in which they come."""
        self.queued[level].acquire()
        while (row := self.queues[level].pop(0)) is not None:
            self.transfer(row)
            self.behind.release()
            self.queued[level].acquire()

    def read(self, row: int) -> None:
        """From what is still to be written, or what is read ahead, or the disk."""
        if self.scenario.ahead:
            self.ready[row].acquire()
            self.ahead.release()
        elif str(self.scenario.source(row)) in self.transfers:
            self.transfer(row)

    def read_ahead(self, name: str) -> None:
        """The reads of one disk, in the order of the program."""
        for row in self.ready:
            if self.disk(row) == name:
                source = self.written[self.scenario.source(row)]
                source.acquire()
                source.release()
                self.ahead.acquire()
                self.transfer(row)
                self.ready[row].release()

    def transfer(self, row: int) -> None:
        """Move the bytes of one word, in turn."""
        name, nbytes = self.disk(row), GRAINS * self.scenario.nbytes
        self.turns[name].lock()
        since = self.now()
        if latency := self.scenario.disks[name].latency:
            self.simgrid.this_actor.sleep_for(latency)
        (self.disks[name].write if self.word(row) == "write" else self.disks[name].read)(nbytes)
        self.transfers[str(row)] = since, self.now()
        self.turns[name].unlock()
        if row in self.written:
            self.written[row].release()


def zone_of(simgrid: Any, engine: Any) -> Any:
    """An empty zone."""
    root = engine.netzone_root
    if hasattr(root, "add_netzone_full"):  # as of version 4.1
        return root.add_netzone_full("zone")
    return simgrid.NetZone.create_full_zone("zone")


def build(simgrid: Any, engine: Any, scenario: Scenario) -> list[Rank]:
    """A host for each rank, and the disks."""
    zone = zone_of(simgrid, engine)
    host_named = zone.add_host if hasattr(zone, "add_host") else zone.create_host
    hosts = [host_named(f"rank{number}", SPEED) for number in range(len(scenario.factors))]

    def made(host: Any, name: str) -> Any:
        disk = scenario.disks[name]
        disk_named = host.add_disk if hasattr(host, "add_disk") else host.create_disk
        device = disk_named(name, GRAINS * disk.read, GRAINS * disk.write)
        operations = simgrid.Disk.Operation
        for operation, alone in (
            (operations.READ, disk.read_alone),
            (operations.WRITE, disk.write_alone),
        ):
            if alone:
                device.set_sharing_policy(
                    operation,
                    simgrid.Disk.SharingPolicy.NONLINEAR,
                    lambda most, clients, alone=GRAINS * alone: min(most, clients * alone),
                )
        device.seal()
        return device

    names = scenario.disks
    shared = {name: made(hosts[0], name) for name, disk in names.items() if disk.shared}
    ranks = []
    for host, factor in zip(hosts, scenario.factors, strict=True):
        disks = {name: shared[name] if name in shared else made(host, name) for name in names}
        ranks.append(Rank(simgrid, host, disks, scenario, factor))
    for host in hosts:
        host.seal()
    zone.seal()
    return ranks


def main() -> None:
    simgrid = import_module("simgrid")
    scenario = Scenario.loads(sys.stdin.read())
    engine = simgrid.Engine([sys.argv[0], "--log=root.thres:error", *sys.argv[1:]])
    ranks = build(simgrid, engine, scenario)
    for rank in ranks:
        rank.begin()
    engine.run()
    if any(len(rank.spans) < len(scenario.program) for rank in ranks):
        sys.exit("the actors of a rank wait for each other for ever")
    outcome = Outcome([rank.spans for rank in ranks], [rank.transfers for rank in ranks])
    sys.stdout.write(json.dumps(asdict(outcome)) + "\n")


if __name__ == "__main__":
    main()
