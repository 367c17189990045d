"""A flood of requests for the page: it is made once for an address, and nobody's words get into another's."""

from __future__ import annotations

import gradio as gr
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from app.kept_answers import KeptAnswers

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def made():
    """The requests that were answered anew."""
    return []


@pytest.fixture
def app(made):
    async def config(request):
        made.append(request)
        seen = {**request.headers, "query": request.url.query}
        status = 503 if "down" in request.headers["host"] else 200
        return JSONResponse({"seen": seen, "filler": "x" * 2000}, status)

    routes = [Route("/config", config), Route("/other", config)]
    return KeptAnswers(GZipMiddleware(Starlette(routes=routes), minimum_size=1024), most=3)


async def get(app, path="/config", *, host="here", method="GET", **headers):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.request(method, path, headers=given)


async def test_a_flood_for_one_address_makes_the_answer_once(app, made):
    answers = [await get(app, f"/config?number={number}") for number in range(20)]
    assert {answer.text for answer in answers} == {answers[0].text}
    assert answers[0].headers["content-encoding"] == "gzip"
    assert len(made) == 1


async def test_those_who_come_meanwhile_wait_for_the_same_answer(made):
    import anyio

    begun, go = anyio.Event(), anyio.Event()

    async def slow(request):
        made.append(request)
        begun.set()
        await go.wait()
        return JSONResponse({"made": len(made)})

    app, answers = KeptAnswers(Starlette(routes=[Route("/config", slow)])), []

    async def ask():
        answers.append((await get(app)).json())

    async with anyio.create_task_group() as visitors:
        for _ in range(5):
            visitors.start_soon(ask)
        await begun.wait()
        go.set()
    assert answers == [{"made": 1}] * 5


async def test_what_a_visitor_sends_is_in_no_answer_that_is_kept(app):
    first = await get(app, "/config?deep_link=eve", cookie="eve=1", user_agent="eve", authorization="eve")
    assert first.status_code == 200
    assert "eve" not in first.text


async def test_each_address_has_an_answer_of_its_own(app, made):
    assert (await get(app, host="here")).json()["seen"]["host"] == "here"
    assert (await get(app, host="there")).json()["seen"]["host"] == "there"
    behind = await get(app, x_forwarded_host="space.example", x_forwarded_proto="https")
    assert behind.json()["seen"]["x-forwarded-host"] == "space.example"
    assert "x-forwarded-host" not in (await get(app, host="here")).json()["seen"]
    assert (await get(app, accept_encoding="identity")).headers.get("content-encoding") is None


async def test_only_so_many_are_kept_and_the_one_in_use_is_among_them(app, made):
    for number in range(10):
        await get(app, host=f"eve{number}")
        await get(app, host="ann")
    assert len(made) == 11
    assert len(app._kept) == 3


async def test_a_failure_and_another_route_are_not_kept(app, made):
    for _ in range(2):
        assert (await get(app, host="down")).status_code == 503
        await get(app, "/other")
    assert len(made) == 4


async def test_an_answer_that_cannot_be_made_is_tried_again():
    tries = []

    async def broken(scope, receive, send):
        tries.append(scope)
        raise LookupError("no page")

    app = KeptAnswers(broken)
    for _ in range(2):
        with pytest.raises(LookupError):
            await get(app)
    assert len(tries) == 2


async def test_the_head_of_the_page_has_no_body(app):
    answer = await get(app, method="HEAD")
    assert answer.status_code == 200
    assert not answer.content


async def test_gradio_says_the_same_whether_or_not_it_is_kept():
    with gr.Blocks() as page:
        box = gr.Textbox("hello")
        box.change(lambda value: value, box, box, api_name="echo")
    bare = gr.routes.App.create_app(page)
    kept = KeptAnswers(bare)
    for path in ("/config", "/gradio_api/info", "/gradio_api/info?all_endpoints=True"):
        first, second, plain = await get(kept, path), await get(kept, path), await get(bare, path)
        assert first.status_code == 200
        assert first.text == second.text == plain.text
