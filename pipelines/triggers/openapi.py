"""What the receiver answers, for programs: its OpenAPI document."""

from __future__ import annotations

from typing import Any

from pipelines.requests import QueuedRequest
from pipelines.triggers.receiver import MOST_BYTES, STATUS, WebhookStatus
from pipelines.triggers.webhooks import DELIVERY_ID_HEADER, EVENTS, SIGNATURE_HEADER, TIMESTAMP_HEADER
from pipelines.views.page import PAGE, REPORT, STREAM

WEBHOOK, REQUESTS, ALIVE, READY, METRICS, DOCUMENT = (
    "/webhooks/mlflow",
    "/requests",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
)


def document(version: str) -> dict[str, Any]:
    """OpenAPI 3.1; `version` is tidegate's."""
    entry = QueuedRequest.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    schemas = {**entry.pop("$defs"), "Entry": entry}
    state = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidegate serve", "version": version},
        "paths": {
            WEBHOOK: {"post": _webhook()},
            REQUESTS: {"get": _get("The last requests", _json({"type": "array", "items": _ref("Entry")}))},
            ALIVE: {"get": _get("Whether the process answers", _json(state))},
            READY: {"get": _get("Whether the registry was looked at lately", _json(state), also={"503": _json(state)})},
            METRICS: {"get": _get("Numbers for Prometheus", _text("text/plain"))},
            PAGE: {"get": _get("The live page, for people", _text("text/html"))},
            STREAM: {"get": _stream()},
            REPORT: {"get": _report()},
        },
        "components": {"schemas": schemas},
    }


def _webhook() -> dict[str, Any]:
    answer = {
        "type": "object",
        "properties": {"outcome": {"enum": [str(outcome) for outcome in WebhookStatus]}},
        "required": ["outcome"],
        "additionalProperties": False,
    }
    told: dict[str, list[str]] = {}
    for outcome, status in STATUS.items():
        told.setdefault(str(int(status)), []).append(outcome)
    headers = (DELIVERY_ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    return {
        "summary": "A webhook of MLflow 3",
        "parameters": [{"name": name, "in": "header", "schema": {"type": "string"}} for name in headers],
        "requestBody": {"required": True, "content": _json(_event())},
        "responses": {
            status: {"description": ", ".join(outcomes), "content": _json(answer)} for status, outcomes in told.items()
        },
    }


def _event() -> dict[str, Any]:
    """As MLflow sends it; larger than MOST_BYTES is refused whatever it says."""
    entities = sorted({event.partition(".")[0] for event in EVENTS})
    text = {"type": "string", "maxLength": 5000}
    return {
        "type": "object",
        "description": f"At most {MOST_BYTES} bytes.",
        "properties": {
            "entity": {"type": "string", "examples": entities},
            "action": {"type": "string", "examples": ["created", "set", "deleted"]},
            "data": {
                "type": "object",
                "properties": dict.fromkeys(("name", "version", "alias", "key", "value"), text),
            },
        },
        "required": ["entity", "action", "data"],
    }


def _get(summary: str, content: dict[str, Any], *, also: dict[str, Any] | None = None) -> dict[str, Any]:
    responses = {"200": content, **(also or {})}
    told = {status: {"description": summary, "content": each} for status, each in responses.items()}
    return {"summary": summary, "responses": told}


def _stream() -> dict[str, Any]:
    seen = {"name": "seen", "in": "query", "schema": {"type": "string"}}
    text = _text("text/event-stream")
    described = _get("Parts of the live page as they change, without end", text, also={"503": _text("text/plain")})
    return {**described, "parameters": [seen]}


def _report() -> dict[str, Any]:
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    also = dict.fromkeys(("404", "503"), _text("text/plain"))
    return {**_get("The report of a delivery", _text("text/html"), also=also), "parameters": [id]}


def _text(media_type: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string"}}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
