"""The rows of the table of behaviours: each is a function that runs on Celery and on django_jobs.

`python -m tests.integration.compat.rows` runs them on Celery, with a worker in a thread, and prints what came as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

Outcome = Any


@dataclass
class Row:
    """One row: what it shows, and how it ends on either side."""

    name: str
    function: Callable[[Side], Outcome]
    what: str
    #: "" if both are the same; else what is different here, for the page.
    here: str


class Side:
    """One of the two systems, as the rows use it."""

    def __init__(self, names: Any, task: Callable[..., Any], conf: Any, turn: Callable[[], object]) -> None:
        """`names` has Celery's names; `turn` lets workers work for a moment."""
        self.names, self.conf, self._make, self._turn = names, conf, task, turn
        self.seen: list[Any] = []
        self.row = ""

    def task(self, *given: Any, **options: Any) -> Any:
        """The decorator."""
        if given:
            return self.task()(given[0])
        return lambda function: self._make(name=f"rows.{self.row}.{function.__name__}", **options)(function)

    def ended(self, *results: Any) -> list[str]:
        """The states of these tasks when they have ended."""
        self.until(lambda: all(each.ready() for each in results))
        return [each.state for each in results]

    def until(self, condition: Callable[[], object]) -> None:
        """Let workers work until this is true."""
        ends = time.monotonic() + 15
        while not condition():
            if time.monotonic() > ends:
                raise TimeoutError("it never came")
            self._turn()

    def settle(self) -> None:
        """Let workers work for a while, to see that nothing comes."""
        for _ in range(5):
            self._turn()

    def raised(self, call: Callable[[], Any]) -> bool:
        """Whether a call raises."""
        try:
            call()
        except Exception:
            return True
        return False


ROWS: list[Row] = []


def row(what: str, here: str = "") -> Callable[[Callable[[Side], Outcome]], Callable[[Side], Outcome]]:
    def add(function: Callable[[Side], Outcome]) -> Callable[[Side], Outcome]:
        ROWS.append(Row(function.__name__, function, what, here))
        return function

    return add


# -- failures and retries ---------------------------------------------------------------------


@row("A task that fails is not tried again")
def once(c: Side) -> Outcome:
    @c.task
    def fails() -> None:
        c.seen.append("ran")
        raise ValueError("no")

    states = c.ended(fails.delay())
    c.settle()
    return states, len(c.seen)


@row("`self.retry(exc=…)` counts from 0, stops after `max_retries`, and then raises the error")
def retries(c: Side) -> Outcome:
    @c.task(bind=True, max_retries=2)
    def fails(self: Any) -> None:
        c.seen.append(self.request.retries)
        try:
            raise KeyError("x")
        except KeyError as error:
            raise self.retry(exc=error, countdown=0) from error

    result = fails.delay()
    c.ended(result)
    return c.seen, type(result.result).__name__


@row("`self.retry(args=…)` or `self.retry(kwargs=…)` replaces what it names, however the call has passed it")
def new_arguments(c: Side) -> Outcome:
    @c.task(bind=True)
    def again(self: Any, a: int, b: int = 2, *more: int, key: int = 4) -> list[int]:
        if self.request.retries == 0:
            self.retry(countdown=0, **self.request.headers["new"])
        return [a, b, *more, key]

    calls: list[Any] = [
        ((1,), {"b": 5, "key": 6}, {"args": (7,)}),
        ((), {"a": 1, "b": 5}, {"args": (7, 8)}),
        ((1, 2, 3), {}, {"kwargs": {"b": 9}}),
        ((1,), {"key": 5}, {"kwargs": {"b": 9}}),
        ((1,), {"key": 5}, {"args": (3,), "kwargs": {}}),
    ]
    results = [again.apply_async(args, kwargs, headers={"new": new}) for args, kwargs, new in calls]
    c.ended(*results)
    return [result.get(timeout=5) for result in results]


@row("While a task waits for a retry, `result` is the error that it was given")
def error_of_a_retry(c: Side) -> Outcome:
    @c.task(bind=True)
    def fails(self: Any) -> None:
        try:
            raise KeyError("x")
        except KeyError as error:
            self.retry(exc=error, countdown=60)

    result = fails.delay()
    c.until(lambda: result.state == "RETRY")
    return type(result.result).__name__


@row("`self.retry()` without an error ends with `MaxRetriesExceededError`")
def no_error(c: Side) -> Outcome:
    @c.task(bind=True, max_retries=1)
    def fails(self: Any) -> None:
        self.retry(countdown=0)

    result = fails.delay()
    c.ended(result)
    return type(result.result).__name__


@row("`autoretry_for` retries after these errors only")
def auto(c: Side) -> Outcome:
    @c.task(autoretry_for=(ValueError,), retry_kwargs={"max_retries": 2, "countdown": 0})
    def fails(kind: str) -> None:
        c.seen.append(kind)
        raise {"value": ValueError, "key": KeyError}[kind]("x")

    c.ended(fails.delay("value"), fails.delay("key"))
    return sorted(c.seen)


@row("`raise Ignore()`", "the task is REVOKED; Celery leaves it PENDING for ever")
def ignored(c: Side) -> Outcome:
    @c.task
    def ignores() -> None:
        c.seen.append("ran")
        raise c.names.Ignore

    result = ignores.delay()
    c.until(lambda: c.seen)
    c.settle()
    return result.state


@row("The order of hooks round a retry and a failure")
def hooks(c: Side) -> Outcome:
    class Base(c.names.Task):  # type: ignore[name-defined, misc]
        def before_start(self, *_: Any) -> None:
            c.seen.append("before_start")

        def on_retry(self, *_: Any) -> None:
            c.seen.append("on_retry")

        def on_failure(self, *_: Any) -> None:
            c.seen.append("on_failure")

        def on_success(self, *_: Any) -> None:
            c.seen.append("on_success")

        def after_return(self, status: str, *_: Any) -> None:
            c.seen.append(status)

    @c.task(bind=True, base=Base, max_retries=1)
    def fails(self: Any) -> None:
        self.retry(countdown=0, exc=ValueError("x"))

    @c.task(base=Base)
    def succeeds() -> None: ...

    c.ended(fails.delay())
    c.until(lambda: c.seen[-1:] == ["FAILURE"])
    c.ended(succeeds.delay())
    c.until(lambda: c.seen[-1:] == ["SUCCESS"])
    return c.seen


@row("A hook that raises does not change how the task ends, nor whether it is retried")
def hooks_that_raise(c: Side) -> Outcome:
    found = []
    for name in ("on_success", "after_return", "on_retry"):

        def raises(self: Any, *_: Any, name: str = name) -> None:
            c.seen.append(name)
            raise RuntimeError("the hook")

        c.row = f"raising_{name}"

        @c.task(bind=True, base=type("Raising", (c.names.Task,), {name: raises}), max_retries=1)
        def works(self: Any) -> int:
            if self.request.retries == 0:
                self.retry(countdown=0)
            c.seen.append("done")
            return 7

        result = works.delay()
        found.append((c.ended(result), result.get(timeout=5)))
    return found, c.seen


@row("The signals of a task that succeeds, and of one that is retried and fails")
def sent(c: Side) -> Outcome:
    names = ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry")
    for name in names:
        getattr(c.names.signals, name).connect(
            lambda name=name, **_: c.seen.append(name), weak=False, dispatch_uid=f"rows {name}"
        )

    @c.task(bind=True, max_retries=1)
    def fails(self: Any) -> None:
        self.retry(countdown=0, exc=ValueError("x"))

    @c.task
    def succeeds() -> None: ...

    c.ended(succeeds.delay())
    c.until(lambda: "task_postrun" in c.seen)
    c.ended(fails.delay())
    c.until(lambda: c.seen.count("task_postrun") == 3)
    for name in names:
        getattr(c.names.signals, name).disconnect(dispatch_uid=f"rows {name}")
    return c.seen


# -- calls ------------------------------------------------------------------------------------------


@row("Arguments that do not fit raise where the task is called")
def misfit(c: Side) -> Outcome:
    @c.task
    def takes(a: int) -> None: ...

    return c.raised(lambda: takes.delay(1, 2))


@row("An argument that is not JSON raises where the task is called")
def strange(c: Side) -> Outcome:
    @c.task
    def takes(a: Any) -> None: ...

    return c.raised(lambda: takes.delay(object()))


@row("A datetime argument comes back as one")
def dates(c: Side) -> Outcome:
    return arrived(c, datetime(2030, 1, 1, tzinfo=UTC))


@row("A tuple argument", "it stays a tuple; Celery makes it a list")
def tuples(c: Side) -> Outcome:
    return arrived(c, (1, 2))


@row("A dictionary with numbers as keys", "they stay numbers; Celery makes them text")
def keys(c: Side) -> Outcome:
    return arrived(c, {1: 2})


def arrived(c: Side, value: Any) -> Outcome:
    @c.task
    def takes(value: Any) -> str:
        return repr(value)

    result = takes.delay(value)
    c.ended(result)
    return result.get(timeout=5)


@row(
    "A queue that nobody has listed", 'it is refused: list it in `QUEUES`, or a pattern such as `"*"`; Celery makes one'
)
def queues(c: Side) -> Outcome:
    @c.task
    def works() -> None: ...

    return c.raised(lambda: works.apply_async(queue="nobodys"))


@row("`countdown` together with `eta`", "it is refused; Celery takes the countdown")
def both(c: Side) -> Outcome:
    @c.task
    def works() -> None: ...

    return c.raised(lambda: works.apply_async(countdown=1, eta=datetime(2030, 1, 1, tzinfo=UTC)))


@row("A name that is defined twice", "it is refused at import; Celery returns the first task")
def twice(c: Side) -> Outcome:
    def define() -> None:
        @c.task
        def works() -> None: ...

    define()

    def again() -> None:
        def works() -> None: ...

        works.__module__ = "elsewhere"
        c.task(works)

    return c.raised(again)


@row("A task that has expired is REVOKED, and does not run")
def expired(c: Side) -> Outcome:
    @c.task
    def works() -> None:
        c.seen.append("ran")

    return c.ended(works.apply_async(countdown=1, expires=0.5)), c.seen


@row("A task has the id that the call gave it, its headers, and says that it was not called directly")
def request(c: Side) -> Outcome:
    @c.task(bind=True)
    def works(self: Any) -> Any:
        return self.request.id, self.request.headers["a"], self.request.called_directly

    result = works.apply_async(task_id="rows-id", headers={"a": 1})
    c.ended(result)
    return result.id, list(result.get(timeout=5))


@row("A task of an unknown id is PENDING")
def unknown(c: Side) -> Outcome:
    return c.names.AsyncResult("rows-nothing").state


@row("`get(timeout=…)` of an unknown id waits, and raises `TimeoutError`")
def unknown_in_time(c: Side) -> Outcome:
    try:
        return c.names.AsyncResult("rows-nothing").get(timeout=0.2)
    except Exception as error:
        return type(error).__name__


@row("`ignore_result=True`", "the task ends as SUCCESS, without its result; Celery leaves it PENDING")
def resultless(c: Side) -> Outcome:
    @c.task(ignore_result=True)
    def works() -> int:
        c.seen.append("ran")
        return 1

    result = works.delay()
    c.until(lambda: c.seen)
    c.settle()
    return result.state, result.result


# -- canvas -----------------------------------------------------------------------------------------------


def adder(c: Side) -> Any:
    @c.task
    def add(a: Any, b: Any) -> Any:
        return a + b

    return add


@row("A chain passes results on; `si` takes none; `parent` leads back")
def chains(c: Side) -> Outcome:
    add = adder(c)
    result = (add.s(1, 2) | add.s(3) | add.si(5, 5)).apply_async()
    c.ended(result)
    return result.get(timeout=5), result.parent.get(timeout=5), result.parent.parent.get(timeout=5)


@row("`group.get()` has the results in order; `completed_count` counts them")
def groups(c: Side) -> Outcome:
    add = adder(c)
    result = c.names.group(add.s(n, n) for n in range(4)).apply_async()
    c.until(result.ready)
    return result.get(timeout=5), result.completed_count()


@row("The body of a chord gets the list of results")
def chords(c: Side) -> Outcome:
    add = adder(c)

    @c.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = c.names.chord([add.s(1, 1), add.s(2, 2)])(total.s())
    c.ended(result)
    return result.get(timeout=5)


@row("The tasks of a group in a group are tasks of the outer one: there is one list of results")
def groups_in_groups(c: Side) -> Outcome:
    add = adder(c)

    @c.task
    def told(numbers: list[int]) -> list[int]:
        return sorted(numbers)

    group = c.names.group
    made = group(group(add.s(1, 1), add.s(2, 2)), add.s(3, 3))
    result, body = made.apply_async(), c.names.chord(made, told.s()).apply_async()
    c.until(result.ready)
    c.ended(body)
    return result.get(timeout=5), body.get(timeout=5)


@row("A group of one task in `chain(…)`", "what comes next gets a list of one result; Celery passes the result itself")
def group_of_one(c: Side) -> Outcome:
    add = adder(c)

    @c.task
    def told(value: Any) -> Any:
        return value

    result = c.names.chain(c.names.group([add.s(1, 1)]), told.s()).apply_async()
    c.ended(result)
    return result.get(timeout=5)


@row("`starmap` and `chunks` give lists of results")
def maps(c: Side) -> Outcome:
    add = adder(c)
    one, more = add.starmap([(1, 2), (3, 4)]).apply_async(), add.chunks([(1, 2), (3, 4), (5, 6)], 2)()
    c.until(lambda: one.ready() and more.ready())
    return one.get(timeout=5), more.get(timeout=5)


@row("What comes after a failed task of a chain does not run; `get()` of the last raises the error")
def broken(c: Side) -> Outcome:
    @c.task
    def fails() -> None:
        c.seen.append("failed")
        raise ValueError("no")

    @c.task
    def comes_next(_: Any) -> None:
        c.seen.append("next")

    last = (fails.s() | comes_next.s()).apply_async()
    c.until(lambda: c.seen)
    c.settle()
    try:
        last.get(timeout=5)
    except ValueError:
        c.seen.append("ValueError")
    return c.seen


@row(
    "The body of a chord whose header has failed",
    "it waits for a retry of that task, and is PENDING; in Celery it fails",
)
def failed_header(c: Side) -> Outcome:
    @c.task
    def fails() -> None:
        c.seen.append("failed")
        raise ValueError("no")

    @c.task
    def body(_: Any) -> None: ...

    result = c.names.chord([fails.s(), fails.si()])(body.s())
    c.until(lambda: len(c.seen) == 2)
    c.settle()
    return result.state


@row("A task of a chain that is revoked before its turn comes never runs, and is REVOKED")
def revoked_in_chain(c: Side) -> Outcome:
    @c.task
    def told(*before: Any) -> None:
        c.seen.append(len(before))

    result = c.names.chain(told.s().set(countdown=0.5), told.s(), told.si()).apply_async()
    result.parent.revoke()
    c.until(lambda: c.seen)
    c.settle()
    return c.seen, result.parent.state, result.state


@row("`link` gets the result, `link_error` the id of the failed task; neither runs in the other case")
def links(c: Side) -> Outcome:
    @c.task
    def works(fail: bool) -> int:
        if fail:
            raise ValueError("no")
        return 7

    @c.task
    def told(value: Any) -> None:
        c.seen.append(value)

    works.apply_async((False,), link=told.s())
    c.until(lambda: c.seen == [7])
    works.apply_async((False,), link_error=told.s())
    works.apply_async((True,), link_error=told.s(), task_id="rows-failed")
    c.until(lambda: len(c.seen) == 2)
    c.settle()
    return c.seen


def failing(c: Side) -> tuple[Any, Any, Any]:
    """Return a task that works, one that fails, and one that writes down which id it was told."""

    @c.task
    def works(*_: Any) -> int:
        return 7

    @c.task
    def fails(*_: Any) -> None:
        raise ValueError("no")

    @c.task
    def told(id: str) -> None:
        c.seen.append(id)

    return works, fails, told


@row("An error callback with several parameters gets the request, the error and the traceback")
def errback_with_error(c: Side) -> Outcome:
    _, fails, _ = failing(c)

    @c.task
    def told_more(request: Any, error: Any, traceback: str, more: int) -> None:
        c.seen.append((request.id, type(error).__name__, "ValueError" in traceback, more))

    fails.apply_async((1,), task_id="rows-error", link_error=told_more.s(more=5))
    c.until(lambda: c.seen)
    return c.seen


@row("`chain(…).on_error(…)`: the errback of the task that fails")
def errback_of_chain(c: Side) -> Outcome:
    works, fails, told = failing(c)
    last = c.names.chain(works.s(), fails.s(), works.s()).on_error(told.s()).apply_async()
    c.until(lambda: c.seen)
    c.settle()
    return [id == last.parent.id for id in c.seen]


@row("`group.link_error(…)`: one errback for each task that fails")
def errback_of_group(c: Side) -> Outcome:
    works, fails, told = failing(c)
    made = c.names.group(works.si(), fails.si(1), fails.si(2))
    made.link_error(told.s())
    result = made.apply_async()
    c.until(lambda: len(c.seen) == 2)
    c.settle()
    return sorted([each.id for each in result].index(id) for id in c.seen)


@row("`chord.link_error(…)`: the errback gets the id of the body, once, however many tasks of the header fail")
def errback_of_header(c: Side) -> Outcome:
    works, fails, told = failing(c)
    made = c.names.chord([works.si(), fails.si(1), works.si() | fails.si(2)], works.s())
    made.link_error(told.s())
    result = made.apply_async()
    c.until(lambda: c.seen)
    c.settle()
    return [id == result.id for id in c.seen]


@row("The errback of a chord whose body fails")
def errback_of_body(c: Side) -> Outcome:
    works, fails, told = failing(c)
    result = c.names.chord([works.si(), works.si()])(fails.s().on_error(told.s()))
    c.until(lambda: c.seen)
    c.settle()
    return [id == result.id for id in c.seen]


@row("A chain with a group in it: the errback of what comes after the group, once, if the group fails")
def errback_of_group_in_chain(c: Side) -> Outcome:
    works, fails, told = failing(c)
    made = c.names.chain(works.si(), c.names.group(works.si(), fails.si(1)), works.s()).on_error(told.s())
    result = made.apply_async()
    c.until(lambda: c.seen)
    c.settle()
    return [id == result.id for id in c.seen]


@row("`link` on a task of a chain, and `link` of the chain")
def link_in_chain(c: Side) -> Outcome:
    add = adder(c)

    @c.task
    def told(value: int) -> None:
        c.seen.append(value)

    first = add.s(1, 2)
    first.link(told.s())
    result = c.names.chain(first, add.s(3)).apply_async(link=told.s())
    c.until(lambda: len(c.seen) == 2)
    c.ended(result)
    return sorted(c.seen), result.get(timeout=5)


@row("A callback that is linked twice is called once")
def linked_twice(c: Side) -> Outcome:
    @c.task
    def told(*_: Any) -> None:
        c.seen.append("told")

    @c.task
    def fails() -> None:
        raise ValueError("no")

    works, breaks = adder(c).s(1, 2), fails.s()
    for _ in range(2):
        works.link(told.s("works"))
        breaks.link_error(told.s("breaks"))
    c.ended(works.apply_async(), breaks.apply_async())
    c.until(lambda: len(c.seen) >= 2)
    c.settle()
    return c.seen


@row("Options of `chain.apply_async`: they count for its first task")
def options_of_chain(c: Side) -> Outcome:
    @c.task(bind=True)
    def told(self: Any, *_: Any) -> bool:
        c.seen.append(self.request.headers is not None and "row" in self.request.headers)

    c.ended((told.s() | told.s()).apply_async(headers={"row": 1}, countdown=0.01))
    return c.seen


@row("`expires` in seconds of a later task of a chain counts from the end of the task before")
def expires_in_chain(c: Side) -> Outcome:
    @c.task
    def takes_longer() -> None:
        time.sleep(0.6)

    @c.task(expires=0.5)
    def told(_: Any) -> None:
        c.seen.append("told")

    return c.ended(c.names.chain(takes_longer.s(), told.s()).apply_async()), c.seen


# -- eager -----------------------------------------------------------------------------------------------------


@row("Eager: a task runs where it is called, with its retries; its error is raised only if errors propagate")
def eager(c: Side) -> Outcome:
    @c.task(bind=True, max_retries=2)
    def fails(self: Any) -> None:
        c.seen.append(self.request.retries)
        self.retry(exc=ValueError("no"))

    c.conf.task_always_eager = True
    try:
        state = fails.delay().state
        c.conf.task_eager_propagates = True
        return state, c.seen[:], c.raised(fails.delay)
    finally:
        c.conf.task_always_eager = c.conf.task_eager_propagates = False


@row("Eager: a chain and a chord")
def eager_canvas(c: Side) -> Outcome:
    add = adder(c)

    @c.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    c.conf.task_always_eager = True
    try:
        chained = (add.s(1, 2) | add.s(3)).apply_async().get()
        return chained, c.names.chord([add.s(1, 1), add.s(2, 2)])(total.s()).get()
    finally:
        c.conf.task_always_eager = False


# -- the run on Celery --------------------------------------------------------------------------------------------


def outcome_of(side: Side, row: Row) -> Outcome:
    """What a row returns, in the form that JSON gives it."""
    side.row, side.seen = row.name, []
    return json.loads(json.dumps(row.function(side)))


def on_celery() -> dict[str, Outcome]:
    """Run all rows on Celery: a broker in memory, and a worker in a thread."""
    import celery
    import celery.exceptions
    import celery.result
    import celery.signals
    from celery.contrib.testing.worker import start_worker

    app = celery.Celery("rows", broker="memory://", backend="cache+memory://")
    app.conf.update(task_default_queue="default", worker_hijack_root_logger=False)
    names = SimpleNamespace(
        **{name: getattr(celery, name) for name in ("Task", "chain", "chord", "group", "signals")},
        AsyncResult=app.AsyncResult,
        Ignore=celery.exceptions.Ignore,
    )
    with start_worker(app, pool="solo", concurrency=1, perform_ping_check=False, loglevel="CRITICAL") as worker:

        def task(**options: Any) -> Callable[[Any], Any]:
            def make(function: Any) -> Any:
                made = app.task(**options)(function)
                assert made.name
                worker.consumer.update_strategies()  # it knows only the tasks that there were at its start
                return made

            return make

        side = Side(names, task, app.conf, lambda: time.sleep(0.05))
        found = {}
        for row in ROWS:
            try:
                found[row.name] = outcome_of(side, row)
            except Exception as error:
                found[row.name] = f"the row has failed: {error!r}"
        return found


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(on_celery()) + "\n")
