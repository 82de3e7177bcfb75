"""The mirror of a real cluster: nothing older ever takes the place of what is newer."""

from __future__ import annotations

import pytest
from fakes.argo.mirror import Mirror, difference
from fakes.kube.patches import merged
from fakes.kube.refusal import Refusal
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import Conflict, NotFound, Unreachable
from rollouts.kube.model import Change, ChangeKind, Json, Request
from rollouts.kube.resources import HTTP_ROUTES, PODS, REPLICA_SETS, ROLLOUTS


class Server:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answer: Json | Exception = {}

    def ask(self, request: Request) -> Json:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_thing(version: int, *, uid: str = "a", kind: str = "ReplicaSet", **fields: object) -> Json:
    metadata = {"name": "chat", "namespace": "serving", "uid": uid, "resourceVersion": str(version)}
    api = {"Rollout": "argoproj.io/v1alpha1", "ReplicaSet": "apps/v1", "Pod": "v1"}.get(kind, "")
    return {"apiVersion": api, "kind": kind, "metadata": metadata} | fields


def told(kind: ChangeKind, body: Json) -> Change:
    return Change(kind=kind, object=body)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def mirror(server: Server) -> Mirror:
    return Mirror((ROLLOUTS, REPLICA_SETS, PODS), ask=server.ask, tell=lambda body: None)


def seen(mirror: Mirror) -> Json | None:
    return mirror.find(REPLICA_SETS, "chat", namespace="serving")


def test_what_is_followed_is_read_without_asking(mirror: Mirror, server: Server) -> None:
    mirror.follow(REPLICA_SETS, told(ChangeKind.ADDED, a_thing(5)))
    assert seen(mirror) == a_thing(5) and server.asked == []


def test_what_was_written_is_known_at_once_and_an_older_word_of_the_watch_changes_nothing(
    mirror: Mirror, server: Server
) -> None:
    mirror.follow(REPLICA_SETS, told(ChangeKind.ADDED, a_thing(5, spec={"replicas": 0})))
    server.answer = a_thing(9, spec={"replicas": 2})
    mirror.update(REPLICA_SETS, a_thing(5, spec={"replicas": 2}), manager="rollouts-controller")
    mirror.follow(REPLICA_SETS, told(ChangeKind.MODIFIED, a_thing(7, spec={"replicas": 0})))
    assert seen(mirror) == a_thing(9, spec={"replicas": 2})
    assert server.asked[0].body == {"spec": {"replicas": 2}}


def test_the_end_of_one_is_not_the_end_of_another_of_its_name(mirror: Mirror) -> None:
    mirror.follow(REPLICA_SETS, told(ChangeKind.ADDED, a_thing(5, uid="b")))
    mirror.follow(REPLICA_SETS, told(ChangeKind.DELETED, a_thing(4, uid="a")))
    assert seen(mirror) is not None
    mirror.follow(REPLICA_SETS, told(ChangeKind.DELETED, a_thing(6, uid="b")))
    assert seen(mirror) is None


def test_a_status_is_patched_where_it_changed_so_that_a_users_word_stays(mirror: Mirror, server: Server) -> None:
    before = a_thing(5, kind="Rollout", status={"phase": "Paused", "pauseConditions": [{"reason": "CanaryPauseStep"}]})
    mirror.follow(ROLLOUTS, told(ChangeKind.ADDED, before))
    server.answer = before | {"status": {"phase": "Progressing"}}
    mirror.update_status(ROLLOUTS, before | {"status": {"phase": "Progressing"}}, manager="rollouts-controller")
    (request,) = server.asked
    assert (request.subresource, request.query) == ("status", {"fieldManager": "rollouts-controller"})
    assert request.body == {"status": {"phase": "Progressing", "pauseConditions": None}}


def test_what_is_not_followed_is_asked_for_each_time(mirror: Mirror, server: Server) -> None:
    server.answer = a_thing(5, kind="HTTPRoute")
    assert mirror.find(HTTP_ROUTES, "chat", namespace="serving") == mirror.find(
        HTTP_ROUTES, "chat", namespace="serving"
    )
    assert len(server.asked) == 2
    mirror.update(HTTP_ROUTES, a_thing(5, kind="HTTPRoute"), manager="rollouts-controller")
    assert len(server.asked) == 2, "a write that changes nothing"


def test_what_is_not_there_is_none_and_what_cannot_be_read_is_refused(mirror: Mirror, server: Server) -> None:
    server.answer = NotFound("no", status=404)
    assert mirror.find(HTTP_ROUTES, "chat", namespace="serving") is None
    server.answer = Unreachable("nobody there")
    with pytest.raises(Refusal, match="nobody there"):
        mirror.find(HTTP_ROUTES, "chat", namespace="serving")


def test_a_conflict_is_refused_and_a_pod_that_ended_is_not(mirror: Mirror, server: Server) -> None:
    rollout, pod = a_thing(5, kind="Rollout", spec={"replicas": 1}), a_thing(6, kind="Pod")
    mirror.follow(ROLLOUTS, told(ChangeKind.ADDED, rollout))
    mirror.follow(PODS, told(ChangeKind.ADDED, pod))
    server.answer = Conflict("somebody was faster", status=409)
    with pytest.raises(Refusal, match="somebody was faster"):
        mirror.update(ROLLOUTS, rollout | {"spec": {"replicas": 2}}, manager="rollouts-controller")
    server.answer = NotFound("gone", status=404)
    labelled = pod | {"metadata": pod["metadata"] | {"labels": {"role": "stable"}}}
    assert mirror.update(PODS, labelled, manager="rollouts-controller") == labelled


def test_what_was_read_belongs_to_the_reader(mirror: Mirror) -> None:
    mirror.follow(REPLICA_SETS, told(ChangeKind.ADDED, a_thing(5)))
    found = seen(mirror)
    assert found is not None
    found["metadata"]["name"] = "other"
    assert seen(mirror) == a_thing(5)


PLAIN = st.one_of(st.booleans(), st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2))
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), PLAIN, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), st.one_of(PLAIN, inner), max_size=3),
    max_leaves=8,
)


@given(OBJECTS, OBJECTS)
def test_a_difference_makes_the_one_of_the_other(old: Json, new: Json) -> None:
    assert merged(old, difference(old, new)) == new
