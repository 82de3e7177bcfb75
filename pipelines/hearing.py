"""Hears what people have answered: checks each proof that stands in the ledger, and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pipelines.answers import (
    Heard,
    Ignored,
    Question,
    Tally,
    answers_to,
    key_of,
    named,
    not_of,
    tally,
    weighed,
)
from pipelines.identity.bound import plan_digest
from pipelines.identity.model import REQUEST, Person, Unproven, read_statement
from pipelines.identity.ports import Identities
from pipelines.payloads import Answer
from pipelines.ports import Event
from tidegate.core.errors import OutsideError


class Hearing:
    """Believes no event: whoever writes to the ledger may write anything there."""

    def __init__(self, identities: Identities) -> None:
        """What was checked once is not checked again; `identities` runs in threads."""
        self._identities = identities
        self._checked: dict[str, Person | str] = {}

    async def answers(self, question: Question, events: Sequence[Event]) -> Tally:
        """What all that was said comes to, by now."""
        asker = None if question.names else await self.requester(question.delivery, events)
        heard: list[Heard] = []
        ignored: list[Ignored] = []
        used: dict[str, str] = {}
        for event in answers_to(events, question.name):
            found = await self.answer(question, event, asker, used)
            if isinstance(found, Heard):
                heard.append(found)
            else:
                by = Answer.model_validate(event.data).by
                ignored.append(Ignored(key=key_of(event), by=by or "somebody", why=found))
        return tally(question, heard, ignored, asker)

    async def answer(
        self, question: Question, event: Event, asker: Person | None, used: dict[str, str] | None = None
    ) -> Heard | str:
        """One answer, or why it does not count.

        Args:
            question: what it should be an answer to.
            event: as it stands in the ledger.
            asker: who asked for the delivery, where that is proven.
            used: the proofs that counts once, each with its statement; grows.
        """
        answer = Answer.model_validate(event.data)
        if answer.proof is None:
            return named(question, event)
        try:
            statement = read_statement(answer.proof)
        except Unproven as error:
            return str(error)
        amiss = not_of(question, statement, event)
        person = amiss or await self._person(event)
        if isinstance(person, str):
            return person
        if person.once and (used or {}).get(person.once, answer.proof.statement) != answer.proof.statement:
            return "its token was used for another answer before"
        if person.once and used is not None:
            used[person.once] = answer.proof.statement
        heard = Heard(person=person, proven=True, approves=event.kind == "approved", reason=statement.reason)
        return weighed(question, heard, asker) or heard

    async def requester(self, delivery: str, events: Sequence[Event]) -> Person | None:
        """Who asked for the delivery; None where that is not proven."""
        said = [event for event in events if (event.step, event.kind) == ("delivery", "requested")]
        if not said:
            return None
        plan = plan_digest(events)
        asked = Question(name=REQUEST, terms=(), delivery=delivery, plan=plan, evidence=plan, since=None)
        answer = Answer.model_validate(said[0].data)
        try:
            amiss = answer.proof is None or not_of(asked, read_statement(answer.proof), said[0])
        except Unproven:
            return None
        person = None if amiss else await self._person(said[0])
        return person if isinstance(person, Person) else None

    async def _person(self, event: Event) -> Person | str:
        proof = Answer.model_validate(event.data).proof
        assert proof is not None, "only a proof says who somebody is"
        key = f"{event.at.isoformat()} {proof.model_dump_json()}"
        known = self._checked.get(key)
        if known is not None:
            return known
        try:
            person: Person | str = await asyncio.to_thread(self._identities.verify, proof, event.at)
        except Unproven as error:
            person = str(error)
        except OutsideError as error:
            # Perhaps at the next look.
            return f"it cannot be checked now: {error}"
        self._checked[key] = person
        return person
