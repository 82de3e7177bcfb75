"""How a team's MLflow server takes bearer tokens: its auth app calls such a function, named in its settings."""

from __future__ import annotations

import os

from flask import Response, make_response, request
from werkzeug.datastructures import Authorization

TOKEN = "TEST_MLFLOW_TOKEN"
"""The server's variable with the one token that it knows."""


def authenticate() -> Authorization | Response:
    """Who asks; a refusal for anybody without the token."""
    if request.headers.get("Authorization") == f"Bearer {os.environ[TOKEN]}":
        return Authorization("basic", {"username": "admin", "password": ""})
    return make_response("who are you?", 401)
