"""Run a study: what is not done yet is given to workers, and each result is written as it comes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pcuq._given import whole_number
from pcuq.errors import InputError
from pcuq.study import cluster
from pcuq.study.cluster import Died
from pcuq.study.plan import Plan
from pcuq.study.store import Store, write_json
from pcuq.study.summary import flat, rows, summary, table


class Step(NamedTuple):
    """Told after each task, and once before the first: how far it is."""

    done: int
    total: int
    failed: int
    workers: int
    record: dict[str, Any] | None


Listener = Callable[[Step], None]


def run(
    plan: Plan,
    out: str | Path,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    listen: Listener = lambda step: None,
    prepare: Callable[..., dict[str, Any]] | None = None,
    task: Callable[..., dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run what is left of a study, write its tables and figure, and return the summary.

    `workers`: processes on this machine, one per core by default. `scheduler`: the address of a
    Dask cluster to use instead. `retry_failed`: run tasks again that ended with an error.
    `prepare` and `task`: in place of those of `pcuq.study.work`.
    """
    if workers is not None and scheduler is not None:
        raise InputError("give the number of workers or the address of a scheduler, not both.")
    workers = None if workers is None else whole_number("workers", workers, 1)
    cluster.dask_distributed()
    store = Store(Path(out), plan)
    with store.lock():
        records = store.records()
        if retry_failed:
            for number in [n for n, record in records.items() if "error" in record]:
                store.discard(number)
                del records[number]
        numbers = [t.number for t in plan.tasks() if t.number not in records]
        prepared = store.prepared
        if numbers or prepared is None:
            count = workers or min(os.cpu_count() or 1, max(1, len(numbers)))
            with cluster.connected(count, scheduler) as client:
                _work(client, plan, store, records, numbers, listen, prepare, task)
            prepared = store.prepared
        assert prepared is not None
        return _finish(plan, store, records, prepared)


def _work(client, plan: Plan, store: Store, records, numbers, listen, prepare, task) -> None:
    """Fill the store with what is missing."""
    if prepare is None or task is None:
        from pcuq.study import work

        prepare, task = prepare or work.prepare, task or work.run_task
    said = plan.to_dict()
    total = len(plan.tasks())

    def tell(record=None) -> None:
        failed = sum("error" in one for one in records.values())
        listen(Step(len(records), total, failed, len(client.nthreads()), record))

    tell()
    prepared = store.prepared
    if prepared is None:
        store.prepare(cluster.call(client, prepare, said))
        prepared = store.prepared
    for number, found in cluster.results(client, task, (said, prepared), numbers):
        record = _died(plan, number, found.attempts) if isinstance(found, Died) else found
        store.add(record)
        records[number] = record
        tell(record)


def _died(plan: Plan, number: int, attempts: int) -> dict[str, Any]:
    message = f"every worker that ran this task died, {attempts} in all; is there enough memory?"
    return {
        **plan.heading(number),
        "error": {"kind": "WorkerDied", "message": message},
        "run": {"seconds": None},
    }


def _finish(plan: Plan, store: Store, records, prepared) -> dict[str, Any]:
    from pcuq.study.figure import draw

    ordered = [records[number] for number in sorted(records)]
    found = summary(plan, ordered, prepared)
    folder = store.folder
    (folder / "tasks.csv").write_text(table([flat(r) for r in ordered]), encoding="utf-8")
    (folder / "summary.csv").write_text(table(rows(plan, ordered)), encoding="utf-8")
    write_json(folder / "summary.json", found)
    draw(plan, rows(plan, ordered)).savefig(folder / f"{plan.kind}.png", dpi=150)
    return found
