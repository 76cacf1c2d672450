"""Roles and visibility, in Python and in SQL."""

import itertools
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine

from jarvis.server import queue
from jarvis.server.access.rights import LOCAL, Person, Role, may_change, may_see, require
from jarvis.server.database import JobKind, JobState, Visibility
from jarvis.server.errors import ForbiddenError
from jarvis.server.queue import NewJob
from tests.server.conftest import on_both_databases

ADA, BOB = "ada@example.org", "bob@example.org"
PEOPLE = [Person(name, role) for name in (ADA, BOB) for role in Role]


@dataclass(frozen=True)
class _Thing:
    owner: str | None
    visibility: Visibility


@pytest.mark.parametrize(
    ("person", "thing", "is_seen", "is_changed"),
    [
        (Person(ADA, Role.EDITOR), _Thing(ADA, Visibility.PRIVATE), True, True),
        (Person(BOB, Role.EDITOR), _Thing(ADA, Visibility.PRIVATE), False, False),
        (Person(BOB, Role.EDITOR), _Thing(ADA, Visibility.TEAM), True, False),
        (Person(BOB, Role.ADMIN), _Thing(ADA, Visibility.PRIVATE), True, True),
        (Person(ADA, Role.VIEWER), _Thing(ADA, Visibility.PRIVATE), True, False),
        (Person(ADA, Role.NONE), _Thing(ADA, Visibility.TEAM), False, False),
        (Person(None, Role.EDITOR), _Thing(None, Visibility.PRIVATE), False, False),
        (LOCAL, _Thing(ADA, Visibility.PRIVATE), True, True),
    ],
)
def test_who_sees_and_changes_what(
    person: Person, thing: _Thing, is_seen: bool, is_changed: bool
) -> None:
    assert may_see(person, thing) is is_seen
    assert may_change(person, thing) is is_changed


def test_a_refusal_says_which_role_is_missing() -> None:
    with pytest.raises(ForbiddenError, match=r"ada.* may not analyze traces .* role editor"):
        require(Person(ADA, Role.VIEWER), Role.EDITOR, "analyze traces")
    require(Person(ADA, Role.EDITOR), Role.EDITOR, "analyze traces")


@on_both_databases
def test_the_queue_shows_to_each_what_they_may_see(engine: Engine) -> None:
    for number, (owner, visibility) in enumerate(
        itertools.product((ADA, BOB, None), (Visibility.TEAM, Visibility.PRIVATE))
    ):
        new = NewJob(JobKind.EXPORT, f"{number}", {"number": number})
        queue.submit(engine, new, owner, visibility)
    everything = queue.recent(engine)
    assert len(everything) == 6
    for person in [*PEOPLE, Person(None, Role.EDITOR), LOCAL]:
        allowed = {job.id for job in everything if may_see(person, job)}
        assert {job.id for job in queue.recent(engine, person=person)} == allowed, person
        assert queue.counts(engine, person).get(JobState.QUEUED, 0) == len(allowed), person
