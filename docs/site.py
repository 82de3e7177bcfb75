"""What `mkdocs.yml` cannot say: pages that lie outside of `docs/`, files that pages link to, what search leaves out.

On a code host a link to `../../tests/...` leads to the file. The site has its own copy, as text that every browser
shows, of each file that a page links to.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

OUTSIDE = {
    "index.md": "README.md",
    "concepts/security.md": "SECURITY.md",
    "internals/contributing.md": "CONTRIBUTING.md",
    "reference/changelog.md": "CHANGELOG.md",
    "reference/versioning.md": "VERSIONING.md",
}
"""By page of the site: where its text lies in the repository."""

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors are those of code hosts, so that links between headings hold in both places."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    root = Path(config.config_file_path).parent
    for uri, source in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(root / source)))
    for page in files.documentation_pages():
        for target in sorted({_target(page, match[2]) for match in LINK.finditer(page.content_string)}):
            uri = _uri(target)
            if uri.startswith("source/") and (root / target).is_file() and uri not in files.src_uris:
                files.append(File.generated(config, uri, abs_src_path=str(root / target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.inclusion.is_not_in_nav():
        page.meta["search"] = {"exclude": True}
    root = Path(config.config_file_path).parent

    def on_site(match: re.Match[str]) -> str:
        target = _target(page.file, match[2])
        if (root / target).is_dir():  # a site lists no folders
            return match[1]
        if (uri := _uri(target)) not in files.src_uris:
            return match[0]
        return f"[{match[1]}]({os.path.relpath(uri, Path(page.file.src_uri).parent)}{match[3] or ''})"

    return LINK.sub(on_site, markdown)


def _target(page: File, link: str) -> str:
    """The path in the repository that a link of a page leads to."""
    folder = Path(OUTSIDE.get(page.src_uri, f"docs/{page.src_uri}")).parent
    return os.path.normpath(folder / link)


def _uri(target: str) -> str:
    """Where the site has a file of the repository; it publishes no name that begins with a dot."""
    for uri, source in OUTSIDE.items():
        if target == source:
            return uri
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return "source/" + re.sub(r"(^|/)\.", r"\1", target) + ".txt"
