"""YAML as specs mean it: a date is the text that stands there, and whoever asks for dates reads it."""

from __future__ import annotations

import yaml

TIMESTAMP = "tag:yaml.org,2002:timestamp"


class PlainLoader(yaml.SafeLoader):
    """Without YAML 1.1's timestamps: 2026-02-30 is a wrong date, which can be told, and not an error inside PyYAML."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
