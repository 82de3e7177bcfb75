"""A message as the bodies that receivers take. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelines.notify.news import News

LONGEST = 3000
"""Characters of a text in chat: Slack cuts a longer one at any place, and a spec's problems can be many."""

Body = Mapping[str, object]


def webhook_body(news: News) -> Body:
    """Everything, for programs; new keys may come, none goes."""
    said = news.model_dump(mode="json")
    return {**said.pop("subject"), **said}


def slack_body(news: News) -> Body:
    """As Slack's incoming webhooks take it, and Mattermost's and Rocket.Chat's."""
    text = news.text if len(news.text) <= LONGEST else f"{news.text[:LONGEST]}…"
    lines = [f"*{_escaped(news.headline)}*", _escaped(text), f"_delivery {news.subject.delivery}_"]
    return {"text": "\n".join(line for line in lines if line)}


BODIES: Mapping[str, Callable[[News], Body]] = {"webhook": webhook_body, "slack": slack_body}
"""By the form's name in the spec."""


def _escaped(text: str) -> str:
    """The three characters by which Slack would make a link or a mention of what a gate or a person wrote."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
