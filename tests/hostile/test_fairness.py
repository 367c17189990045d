"""One client's floods of runs, sessions, requests and jobs that nobody listens to: others are served."""

from __future__ import annotations

import datetime
import re
import threading
import time
from types import SimpleNamespace

import gradio as gr
import httpx
import pytest

from app import text
from app.clients import ClientMarks, TrustedProxies
from app.edge import CLIENT, RETRY_SECONDS, EdgeState, RequestGuard, RequestRates
from app.events import long_run
from app.lane import FairQueue, Listeners, use_fair_queue
from app.limits import Limits
from app.metrics import Metrics
from app.priority_lock import DEVICE, PriorityLock, hold_each_step
from app.routes import AllowedRoute, BodyKind
from app.session import StopSignal
from app.visitors import FairSessions, SessionOwners
from atlas_engine.result import Run
from tests.test_result import make_step

pytestmark = pytest.mark.anyio

LIMITS = Limits(
    waiting=8, waiting_runs=2, waiting_questions=3, unheard_seconds=0.2, sessions=6, visitor_sessions=3
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def page():
    from app.events import DEVICE as LANE

    @long_run
    def learn(value):
        yield value

    def ask(value):
        return value

    with gr.Blocks() as built:
        box = gr.Textbox()
        held = gr.State(None, time_to_live=100)
        gr.Button().click(learn, box, box, api_name="learn", **LANE)
        gr.Button().click(ask, box, box, api_name="ask", **LANE)
        box.change(lambda value: value, held, held)
    use_fair_queue(built)
    return built


@pytest.fixture
def queue(page):
    stopped = []
    made = FairQueue(
        page,
        listeners=Listeners(),
        metrics=Metrics(),
        note_session=lambda session, client: None,
        stop_run=stopped.append,
        limits=LIMITS,
    )
    made.stopped_runs = stopped
    made.active_jobs = [None] * 4
    return made


async def join(queue, client, *, learns=True, session="s"):
    """A job of a client, as a request brings it; whether it was taken, and the refusal if not."""
    body = gr.data_classes.PredictBodyInternal(
        data=["x"], fn_index=0 if learns else 1, session_hash=session, request=None
    )
    request = SimpleNamespace(scope={CLIENT: client})
    taken, said, _ = await queue.push(body=body, request=request, username=None)
    return taken, said


def begin_next(queue):
    """What the queue's own loop does with the next job."""
    events, _, lane = queue.get_events()
    queue.active_jobs[queue.active_jobs.index(None)] = events
    queue.event_queue_per_concurrency_id[lane].current_concurrency += 1
    return events[0]


async def test_a_client_has_one_run_under_way_and_two_that_wait(queue):
    assert (await join(queue, "eve"))[0]
    begin_next(queue)
    assert [(await join(queue, "eve"))[0] for _ in range(2)] == [True, True]
    assert await join(queue, "eve", session="another tab") == (False, text.server.CLIENT_WAITS)
    assert (await join(queue, "ann"))[0], "another client is not refused for it"
    assert (await join(queue, "eve", learns=False))[0], "and a question is no run"


async def test_questions_have_a_lane_of_their_own_and_a_bound(queue):
    await join(queue, "eve")
    begin_next(queue)
    for _ in range(3):
        assert (await join(queue, "eve", learns=False))[0]
    assert await join(queue, "eve", learns=False) == (False, text.server.CLIENT_ASKS)
    assert begin_next(queue).fn.api_name == "ask", "it goes on while a run is under way"


async def test_the_client_who_used_least_goes_first(queue):
    queue._used["eve"] = (time.monotonic(), 100.0)
    await join(queue, "eve")
    await join(queue, "eve")
    await join(queue, "ann", session="a")
    assert begin_next(queue).session_hash == "a"


async def test_waiting_makes_up_for_what_was_used(queue):
    queue._used["eve"] = (time.monotonic(), 100.0)
    await join(queue, "eve", session="e")
    queue.waiting_events()[0].enqueue_time -= 150
    await join(queue, "ann", session="a")
    assert begin_next(queue).session_hash == "e"


async def test_a_job_that_nobody_listens_to_is_dropped_and_one_that_is_heard_stays(queue):
    await join(queue, "eve", session="silent")
    await join(queue, "ann", session="heard")
    with queue._listeners.listening("heard"):
        time.sleep(0.25)
        assert await queue.drop_unheard_jobs() == 1
    assert [event.session_hash for event in queue.waiting_events()] == ["heard"]
    assert queue.stopped_runs == ["silent"]


async def test_a_run_that_nobody_listens_to_any_more_is_stopped(queue):
    await join(queue, "eve", session="silent")
    event = begin_next(queue)
    time.sleep(0.25)
    assert await queue.drop_unheard_jobs() == 1
    assert not event.alive
    assert queue.stopped_runs == ["silent"]


async def test_a_full_queue_says_so(queue):
    for number in range(8):
        assert (await join(queue, f"client {number}"))[0]
    assert await join(queue, "one more") == (False, text.server.QUEUE_FULL)


# ---- turns on the device


def test_a_question_waits_for_one_step_of_a_run_and_not_for_the_run():
    turn, order = PriorityLock(), []

    def learn():
        for step in range(50):
            time.sleep(0.02)
            order.append(step)
            yield step

    run = threading.Thread(target=lambda: list(hold_each_step(learn, turn, urgent=False)()))
    run.start()
    time.sleep(0.1)
    hold_each_step(lambda: order.append("asked"), turn, urgent=True)()
    run.join()
    assert order.index("asked") < 20
    assert order[-1] == 49


def test_a_question_waits_for_one_pass_of_a_step_and_not_for_the_step():
    """A step of the paper's batches took ten seconds, and a question waited for two of them."""
    asked, learning = threading.Event(), threading.Event()

    def start(stop):
        passes = 0
        while passes < 1000 and not stop.is_set():  # one step, which ends early once somebody could ask
            learning.set()
            time.sleep(0.005)
            passes = 1000 if asked.is_set() else passes + 1
        yield make_step(0, of=1, values={})
        return asked.is_set()

    run, came_between = Run(start), []

    def learn():
        for step in StopSignal().follow(run):
            came_between.append(asked.is_set())
            yield step

    runner = threading.Thread(target=lambda: list(hold_each_step(learn, DEVICE, urgent=False)()))
    runner.start()
    assert learning.wait(10)
    hold_each_step(asked.set, DEVICE, urgent=True)()
    runner.join()
    assert came_between == [True]


def test_questions_without_end_do_not_stop_learning():
    turn, steps, stop = PriorityLock(), [], threading.Event()

    def ask():
        while not stop.is_set():
            with turn.hold(urgent=True):
                time.sleep(0.02)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        with turn.hold(urgent=False):
            steps.append(1)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert steps == [1]


def test_while_it_reads_a_run_gives_the_device_away():
    got = threading.Event()

    def ask():
        with DEVICE.hold(urgent=True):
            got.set()

    with DEVICE.hold(urgent=False), DEVICE.paused():
        threading.Thread(target=ask).start()
        assert got.wait(5)


# ---- sessions


@pytest.fixture
def sessions(page):
    page.state_session_capacity = LIMITS.sessions
    return FairSessions(page, SessionOwners(), limits=LIMITS)


def use(sessions, name, client, *, result=None):
    sessions._owners.note(name, client)
    state = sessions[name]
    if result is not None:
        (key,) = [key for key, block in sessions.blocks.blocks.items() if isinstance(block, gr.State)]
        state[key] = result
    return state


def test_a_flood_of_sessions_evicts_no_result_of_another(sessions):
    for name in ("ann", "bob"):
        use(sessions, name, name, result="a result")
    for number in range(50):
        use(sessions, f"flood {number}", "eve", result="junk")
    assert {"ann", "bob"} <= set(sessions.session_data)
    assert len(sessions.session_data) == 2 + LIMITS.visitor_sessions


def test_a_flood_from_many_addresses_drops_what_holds_no_result_first(sessions):
    use(sessions, "ann", "ann", result="a result")
    for number in range(50):
        use(sessions, f"flood {number}", f"eve {number}")
    assert "ann" in sessions.session_data
    assert len(sessions.session_data) == LIMITS.sessions


def test_a_result_expires_though_nobody_reads_it(sessions):
    state = use(sessions, "ann", "ann", result="a result")
    assert sessions.sweep() == 0
    assert sessions.sweep(datetime.datetime.now() + datetime.timedelta(seconds=101)) == 1
    assert "a result" not in state.state_data.values()


# ---- who a client is, and how much it may ask


def scope_of(peer, forwarded=None):
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    return {"client": (peer, 1), "headers": headers}


def test_only_a_known_proxy_is_believed(monkeypatch):
    assert TrustedProxies().client_of(scope_of("127.0.0.1", "203.0.113.9")) == "127.0.0.1"
    monkeypatch.setenv("ATLAS_PROXIES", "127.0.0.1, 10.0.0.0/8")
    proxies = TrustedProxies.from_environment()
    assert proxies.client_of(scope_of("10.1.2.3", "203.0.113.9")) == "203.0.113.9"
    assert proxies.client_of(scope_of("10.1.2.3", "1.1.1.1, 8.8.8.8, 10.9.9.9")) == "8.8.8.8"
    assert proxies.client_of(scope_of("10.1.2.3", "nonsense")) == "10.1.2.3"
    assert proxies.client_of(scope_of("192.0.2.1", "203.0.113.9")) == "192.0.2.1"


def test_an_ipv6_visitor_is_its_network():
    one, other = (TrustedProxies().client_of(scope_of(f"2001:db8:1:2::{last}")) for last in ("1", "ffff"))
    assert one == other == "2001:db8:1:2::/64"


def test_a_mark_that_this_process_did_not_make_is_none():
    marks = ClientMarks()
    assert marks.read(marks.mark("203.0.113.9")) == "203.0.113.9"
    assert marks.read(ClientMarks().mark("203.0.113.9")) is None
    assert marks.read("203.0.113.9 ") is None
    assert marks.read("") is None


def test_a_burst_of_requests_ends_and_others_are_not_counted_with_it():
    rates = RequestRates(Limits(request_burst=5, requests_per_second=1000.0))
    assert [rates.allow("eve") for _ in range(5)] == [True] * 5
    rates = RequestRates(Limits(request_burst=5, requests_per_second=0.001))
    assert [rates.allow("eve") for _ in range(7)] == [True] * 5 + [False] * 2
    assert rates.allow("ann")


def test_a_request_that_costs_more_counts_more():
    rates = RequestRates(Limits(request_burst=20, requests_per_second=0.001))
    assert [rates.allow("eve", cost=10) for _ in range(3)] == [True, True, False]


async def test_who_is_refused_for_now_is_told_when_to_come_again():
    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    routes = (
        AllowedRoute("page", frozenset({"GET"}), re.compile("/")),
        AllowedRoute("join", frozenset({"POST"}), re.compile("/join"), BodyKind.JSON, starts_work=True),
    )
    state = EdgeState(routes, limits=Limits(request_burst=12, requests_per_second=0.001))
    transport = httpx.ASGITransport(RequestGuard(answer, state=state))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        assert (await client.post("/join", json={})).status_code == 200
        state.draining = True
        stopping = await client.post("/join", json={})
        assert (stopping.status_code, stopping.json()["detail"]) == (503, text.server.DRAINING)
        assert (await client.get("/")).status_code == 200, "who is there already can look at the page"
        flood = await client.get("/")
        assert (flood.status_code, flood.json()["detail"]) == (429, text.server.TOO_MANY_REQUESTS)
    assert int(stopping.headers["retry-after"]) == int(flood.headers["retry-after"]) == RETRY_SECONDS
