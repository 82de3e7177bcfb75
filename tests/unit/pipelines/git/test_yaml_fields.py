"""One value of a file that people keep is replaced, and nothing else of it changes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines.plan.git_changes import WantedFile, changes_to
from pipelines.spec.yaml_fields import FieldFile
from tidegate.core.spec import SpecError

pytestmark = pytest.mark.long

VALUES = """\
# Served by the platform team.
image:
  repository: registry.example/llm   # of the region
  digest: "sha256:aaa"
  tag:   # none
replicas: 4
version: 6

images:
- {name: other, newName: x}
- name: llm
  newName: registry.example/llm
  digest: 'sha256:aaa'
labels: {"tidegate.dev/version": "6", odd: yes}
"""

OBJECTS = """\
apiVersion: v1
kind: Service
metadata: {name: llm}
---
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata:
  name: llm
spec:
  template:
    spec:
      containers:
      - image: registry.example/llm@sha256:aaa # pinned
        name: engine
"""


@pytest.mark.parametrize(
    ("field", "value", "before", "after"),
    [
        ("/image/digest", "sha256:bbb", '"sha256:aaa"', '"sha256:bbb"'),
        ("/image/repository", "mirror.example/a", "registry.example/llm   #", '"mirror.example/a"   #'),
        ("/image/tag", "v7", "  tag:   # none", '  tag: "v7"   # none'),
        ("/version", "7", "version: 6", "version: 7"),
        ("/version", "7-ab", "version: 6", 'version: "7-ab"'),
        ("/image/repository", "a: b", "registry.example/llm   #", '"a: b"   #'),
        ("/images/1/digest", "sha256:b'b", "'sha256:aaa'", '"sha256:b\'b"'),
        ("/images/1/newName", "mirror.example/a", "newName: registry.example/llm", 'newName: "mirror.example/a"'),
        ("/images/0/newName", "a, b", "newName: x}", 'newName: "a, b"}'),
        ("/labels/tidegate.dev~1version", "7", '"6", odd', '"7", odd'),
        ("/labels/odd", "no", "odd: yes", 'odd: "no"'),
    ],
)
def test_only_the_value_changes(field: str, value: str, before: str, after: str) -> None:
    assert VALUES.count(before) == 1
    changed = FieldFile(VALUES, "values.yaml").replaced(field, value)
    assert changed == VALUES.replace(before, after)
    assert FieldFile(changed, "values.yaml").value(field) == value


def test_the_document_is_chosen_by_kind_and_name() -> None:
    field = "/spec/template/spec/containers/0/image"
    changed = FieldFile(OBJECTS, "a.yaml").replaced(field, "b@sha256:bbb", within="Rollout/llm")
    assert changed == OBJECTS.replace("registry.example/llm@sha256:aaa", '"b@sha256:bbb"')


def test_line_ends_and_a_byte_order_mark_stay() -> None:
    text = "\ufeff" + VALUES.replace("\n", "\r\n")
    changed = FieldFile(text, "values.yaml").replaced("/image/digest", "sha256:bbb")
    assert changed == text.replace('"sha256:aaa"', '"sha256:bbb"')


def test_what_is_said_already_is_left_as_it_is_written() -> None:
    wanted = WantedFile(path="values.yaml", fields={"/labels/odd": "yes", "/version": "6"})
    assert changes_to([wanted], {"values.yaml": VALUES}).files == {}


@pytest.mark.parametrize(
    ("text", "field", "within", "problem"),
    [
        (VALUES, "/image/name", "", "v.yaml:3: /image/name: found no such field; expected the field, with"),
        (VALUES, "/image", "", "v.yaml:3: /image: found a list or a mapping; expected a field with one value"),
        (VALUES, "/images/5/name", "", "v.yaml:10: /images/5/name: found no such field"),
        (VALUES, "/images/x/digest", "", "found no such field"),
        (OBJECTS, "/kind", "", "v.yaml:1: /kind: found 2 documents; expected one, or `object: KIND/NAME`"),
        (OBJECTS, "/kind", "Pod/llm", "found 0 documents Pod/llm; expected one; there are Rollout/llm, Service/llm"),
        ("a: &x b\nc: *x", "/a", "", "v.yaml:1: /a: found an anchor, a tag or a block of text"),
        ("a: !!str b", "/a", "", "found an anchor, a tag or a block of text"),
        ("a: |\n  b\n", "/a", "", "found an anchor, a tag or a block of text"),
        ("x: &x {a: b}\ny: *x", "/x/a", "", "v.yaml:1: /x/a: found a value that an alias repeats elsewhere"),
        ("x: &x {a: b}\ny: *x", "/y/a", "", "found a value that an alias repeats elsewhere"),
        ("x: &x {a: b}\ny: {<<: *x}", "/x/a", "", "found a value that an alias repeats elsewhere"),
        ("image: {{ .Values.image }}\na: [", "/image", "", "v.yaml:2: found no YAML; expected YAML without templates"),
        ("", "/a", "", "found 0 documents"),
    ],
)
def test_what_cannot_be_replaced_alone_is_refused(text: str, field: str, within: str, problem: str) -> None:
    with pytest.raises(SpecError) as refused:
        FieldFile(text, "v.yaml").replaced(field, "new", within=within)
    assert problem in str(refused.value)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
PLAIN = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none()),
    min_size=1,
    max_size=5,
)


@given(PLAIN, TEXTS, st.sampled_from([None, "'", '"']), st.booleans(), st.data())
def test_whatever_is_there_another_text_can_be_put_in_its_place(
    content: dict[str, Any], value: str, style: str | None, flow: bool, data: st.DataObject
) -> None:
    text = yaml.safe_dump({"top": [content]}, default_style=style, default_flow_style=flow, allow_unicode=True)
    field = data.draw(st.sampled_from(sorted(content)))
    there = FieldFile(text, "a.yaml")
    try:
        changed = there.replaced(f"/top/0/{field}", value)
    except SpecError as refused:
        assert "an anchor, a tag or a block of text" in str(refused)
        return
    (found,) = yaml.safe_load(changed)["top"]
    assert FieldFile(changed, "a.yaml").value(f"/top/0/{field}") == value
    assert {**found, field: None} == {**content, field: None}
