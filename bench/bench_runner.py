"""The bench of the runner still runs, and its bare loop does what a run does."""

import pytest
import runner

WORK = runner.Work.of(200)


@pytest.mark.parametrize("name", runner.CONTENDERS)
def test_every_way_to_run(benchmark, name: str) -> None:
    benchmark(runner.CONTENDERS[name], WORK)


def test_the_bare_loop_makes_the_calls_of_a_run(monkeypatch) -> None:
    seen: list[tuple[str, object]] = []

    def noting(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def noted(self: object, what: object, *others: object) -> object:
            seen.append((name, what))
            return real(self, what, *others)

        monkeypatch.setattr(kind, name, noted)

    for name in ("advance", "record", "reverse", "load"):  # states are also dumped to be compared
        noting(runner.Nothing, name)
    for name in ("write", "read", "discard"):
        noting(runner.Ram, name)
    runner.bare(WORK)
    calls, seen[:] = list(seen), []
    runner.CONTENDERS[runner.RUN](WORK)
    assert calls == seen


def test_a_timeline_takes_as_much_as_its_columns() -> None:
    assert 24 <= runner.timeline_bytes(runner.Work.of(3000)) <= runner.MOST_BYTES


def test_perform_holds_no_more_for_twice_the_actions() -> None:
    short, long = runner.Work.of(4000), runner.Work.of(8000)
    more = runner.sink_bytes(long) - runner.sink_bytes(short)
    assert more < 8 * (len(long.calls) - len(short.calls))
