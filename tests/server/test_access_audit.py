"""The audit log: in order, searchable, a page at a time."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

from sqlalchemy import Engine

from jarvis.server.access import audit
from jarvis.server.access.audit import MAX_SUBJECT_LENGTH, Action, AuditFilter, Channel
from jarvis.server.access.rights import LOCAL, Person, Role
from tests.server.conftest import on_both_databases

pytestmark = on_both_databases
ADA = Person("ada@example.org", Role.EDITOR)


def test_what_is_recorded_can_be_read(engine: Engine) -> None:
    before = datetime.now(UTC)
    audit.record(engine, ADA, Channel.API, Action.ANALYZE, "owlv2", job="j1", bytes=12)
    (entry,) = audit.recent(engine)
    assert (entry.person, entry.via, entry.action) == (ADA.name, Channel.API, Action.ANALYZE)
    assert (entry.subject, entry.detail) == ("owlv2", {"job": "j1", "bytes": 12})
    assert before <= entry.moment <= datetime.now(UTC)


def test_it_is_read_newest_first_and_a_page_at_a_time(engine: Engine) -> None:
    for number in range(5):
        audit.record(engine, LOCAL, Channel.PAGE, Action.PIN, str(number))
    assert [e.subject for e in audit.recent(engine, limit=2)] == ["4", "3"]
    assert [e.subject for e in audit.recent(engine, limit=2, offset=4)] == ["0"]
    assert audit.count(engine) == 5


def test_it_can_be_searched(engine: Engine) -> None:
    audit.record(engine, ADA, Channel.PAGE, Action.PIN, "owlv2")
    audit.record(engine, LOCAL, Channel.COMMAND, Action.REMOVE, "100%_qwen")
    hour = timedelta(hours=1)
    for wanted, expected in [
        (AuditFilter(person="ADA"), ["owlv2"]),
        (AuditFilter(action=Action.REMOVE), ["100%_qwen"]),
        (AuditFilter(via=Channel.PAGE), ["owlv2"]),
        (AuditFilter(subject="0%_"), ["100%_qwen"]),
        (AuditFilter(subject="l_"), []),
        (AuditFilter(since=datetime.now(UTC) + hour), []),
        (AuditFilter(until=datetime.now(UTC) + hour), ["100%_qwen", "owlv2"]),
    ]:
        assert [e.subject for e in audit.recent(engine, wanted)] == expected, wanted
        assert audit.count(engine, wanted) == len(expected)


def test_a_long_name_is_cut(engine: Engine) -> None:
    audit.record(engine, LOCAL, Channel.PAGE, Action.ANALYZE, "x" * 100_000)
    assert len(audit.recent(engine)[0].subject) == MAX_SUBJECT_LENGTH


def test_a_name_that_no_database_can_hold_is_repaired(engine: Engine) -> None:
    audit.record(engine, LOCAL, Channel.PAGE, Action.ANALYZE, "a\0b\ud800c")
    assert audit.recent(engine, AuditFilter(subject="\0b\ud800"))[0].subject == "ab?c"


def test_a_login_is_recorded_once_by_tabs_that_open_at_once(engine: Engine) -> None:
    together = Barrier(4)

    def open_tab(_: int) -> None:
        for login in range(10):
            together.wait()
            audit.record_login(engine, ADA, str(login))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_tab, range(4)))
    asked = AuditFilter(person=ADA.name, action=Action.LOG_IN)
    assert [e.detail["login"] for e in audit.recent(engine, asked)] == [
        str(login) for login in reversed(range(10))
    ]


def test_the_same_mark_of_another_person_is_another_login(engine: Engine) -> None:
    other = Person("eve@ada@example.org", Role.VIEWER)
    for person in (ADA, other, ADA):
        audit.record_login(engine, person, "1")
    assert [e.person for e in audit.recent(engine)] == [other.name, ADA.name]
