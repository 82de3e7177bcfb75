"""HTML of templates that lie next to the code that fills them."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def html_templates(package: str) -> Environment:
    """The templates of that package: what is put into them is escaped, and a name that is not there is an error."""
    return Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
