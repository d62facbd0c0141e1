"""The OpenAPI document against the server: whatever it allows, and whatever it forbids, is asked
over sockets on the scripted engine; every answer must be one that it describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.fakes import ScriptedEngine
from support.live_server import TIMEOUT_S, LiveLoop, looping
from support.server_fakes import Harness, say
from surefoot.server.app import UNSERVED
from surefoot.server.limits import RequestLimits, ServerConfig
from surefoot.server.openapi import openapi_document

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
DOCUMENT = openapi_document(ServerConfig())
OPERATIONS = [(verb, path) for path, verbs in DOCUMENT["paths"].items() for verb in verbs]
POSTS = [path for verb, path in OPERATIONS if verb == "post"]
READS = [path for verb, path in OPERATIONS if verb == "get"]


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLoop]:
    with looping(ScriptedEngine(4, 80, vocab=128)) as running:
        yield running


def answers(live: LiveLoop, verb: str, path: str, mode: GenerationMode, most: int) -> set[int]:
    """Ask up to `most` generated requests, hold each answer to `CHECKS`, return the statuses."""
    document = schemathesis.openapi.from_url(live.url + "/openapi.json")
    statuses: set[int] = set()

    @seed(1)
    @settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=document[path][verb].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            del case.body["model"]  # another name is a 404 and no more
        response = case.call(timeout=TIMEOUT_S)
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    ask()
    return statuses


@pytest.mark.parametrize("path", POSTS)
def test_whatever_the_document_allows_gets_an_answer_of_the_document(
    live: LiveLoop, path: str
) -> None:
    assert 200 in answers(live, "post", path, GenerationMode.POSITIVE, most=8)


@pytest.mark.parametrize("path", POSTS)
def test_whatever_the_document_forbids_is_refused(live: LiveLoop, path: str) -> None:
    assert answers(live, "post", path, GenerationMode.NEGATIVE, most=20) <= {400, 413, 415}


@pytest.mark.parametrize("path", READS)
def test_what_is_read_looks_as_the_document_says(live: LiveLoop, path: str) -> None:
    wanted = {404} if "{" in path else {200}
    assert answers(live, "get", path, GenerationMode.POSITIVE, most=5) == wanted


@pytest.mark.parametrize(
    ("path", "schema"),
    [("/v1/models/tiny", "Model"), ("/v1/models", "Models"), ("/props", "Props")],
)
def test_replies_of_the_one_model(path: str, schema: str) -> None:
    assert not errors(schema, Harness(say("OK")).get(path).json())


def errors(schema: str, value: object) -> list[str]:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    validator = jsonschema_rs.Draft202012Validator(whole)
    return [str(error) for error in validator.iter_errors(value)]


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("chat", {}),
        ("chat", {"logprobs": True, "top_logprobs": 2, "n": 2}),
        ("complete", {"logprobs": 2, "n": 2}),
        ("complete", {"echo": True}),
    ],
)
def test_replies_and_chunks_fit_their_schemas(kind: str, extra: dict[str, Any]) -> None:
    ask = getattr(Harness(say("OK")), kind)
    name = "Chat" if kind == "chat" else "Completion"
    assert not errors(f"{name}Reply", ask(**extra).json())
    stream = ask(**extra, stream=True, stream_options={"include_usage": True}).text
    events = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert events.pop() == "[DONE]"
    assert len(events) >= 4
    for event in events:
        assert not errors(f"{name}Chunk", json.loads(event))


def test_every_route_is_in_the_document_or_is_not_served() -> None:
    app = Harness().app
    routes = {
        (verb.lower(), route.path.replace(":path", ""))
        for route in app.routes
        for verb in route.methods
        if verb != "HEAD"
    }
    assert routes == {*OPERATIONS, *(("post", path) for path in UNSERVED)}


def test_the_document_says_this_servers_limits_and_key() -> None:
    config = ServerConfig(
        api_keys=("secret",), request=RequestLimits(max_messages=7, max_n=3, max_logit_bias=5)
    )
    harness = Harness(config=config)
    assert harness.get("/openapi.json").status_code == 401
    document = harness.get("/openapi.json", Authorization="Bearer secret").json()
    chat = document["paths"]["/v1/chat/completions"]["post"]
    fields = chat["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert fields["messages"]["maxItems"] == 7
    assert fields["n"]["anyOf"][0]["maximum"] == 3
    assert fields["logit_bias"]["anyOf"][0]["maxProperties"] == 5
    assert document["security"] == [{"key": []}]
    assert document["paths"]["/health"]["get"]["security"] == []
    assert "401" in chat["responses"]
    assert "401" not in document["paths"]["/health"]["get"]["responses"]
    assert "security" not in DOCUMENT
    assert "secret" not in json.dumps(document)
