"""Catalog of stored analyses: the table follows added, changed and deleted folders."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Engine

from jarvis.core.labels import NO_LABELS, RunLabels
from jarvis.core.workspace import RunPaths, analyses_dir, pins_dir
from jarvis.run import read_manifest
from jarvis.server.access.rights import LOCAL, Person, Role
from jarvis.server.database import Visibility
from jarvis.server.errors import UnknownAnalysisError
from jarvis.server.retention.housekeeping import drop_missing
from jarvis.server.storage import analysis_rows, catalog
from jarvis.server.storage.analysis_rows import (
    add_labels,
    labeled,
    record,
    stored_for,
    stored_rows,
)
from jarvis.server.storage.catalog import (
    Entry,
    pinned,
    read_catalog,
    set_pinned,
    set_visibility,
    stored_row,
)
from jarvis.server.storage.storage_keys import folder_bytes
from jarvis.server.submission import Submission, submit
from tests.builders import trace
from tests.server.conftest import on_both_databases, set_owner

pytestmark = on_both_databases
Keep = Callable[..., Path]
ANN, BOB = Person("ann", Role.EDITOR), Person("bob", Role.EDITOR)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an analysis, in a home of another server."""
    home = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JARVIS_HOME", str(home))
        built = trace().op("aten::mm", [[64, 32], [32, 16]]).launches("gemm_kernel", us=12)
        return submit(Submission(built.write(home / "tiny.json"))).root


@pytest.fixture
def keep(made: Path, engine: Engine) -> Keep:
    """Puts a copy of the analysis under an id, as `cp` or another process would."""

    def copy(name: str, **changes: str) -> Path:
        root = analyses_dir() / name
        manifest = read_manifest(made).model_copy(update={"analysis_id": name} | changes)
        if root.exists():
            shutil.rmtree(root)
        shutil.copytree(made, root)
        RunPaths(root).manifest.write_text(manifest.model_dump_json(), encoding="utf-8")
        return root

    return copy


def the_entry() -> Entry:
    (entry,) = read_catalog().entries
    return entry


def test_a_folder_that_was_copied_in_is_listed_at_once(keep: Keep) -> None:
    root = keep("mine", model_name="Mine")
    entry = the_entry()
    assert (entry.id, entry.root, entry.title.split(" · ")[0]) == ("mine", root, "Mine")
    assert (entry.owner, entry.visibility, entry.is_pinned) == (None, Visibility.TEAM, False)
    assert entry.size_bytes == folder_bytes(root)
    assert entry.written_ns == RunPaths(root).manifest.stat().st_mtime_ns
    assert the_entry() == entry


def test_what_is_made_again_keeps_its_owner_and_pin_and_has_another_version(
    keep: Keep, engine: Engine
) -> None:
    keep("mine")
    set_owner("mine", "ann")
    set_visibility("mine", Visibility.PRIVATE)
    set_pinned("mine", is_pinned=True)
    before = the_entry()
    keep("mine", model_name="Again")
    after = the_entry()
    assert (after.owner, after.visibility, after.is_pinned) == ("ann", Visibility.PRIVATE, True)
    assert after.manifest.model_name == "Again"
    assert after.version != before.version
    record(engine, after.root, version="published")
    assert the_entry().version == "published"


def test_the_maker_of_an_analysis_owns_it_and_no_user_takes_it_over(
    keep: Keep, engine: Engine
) -> None:
    root = keep("mine")
    with stored_for("ann"):
        record(engine, root)
    assert the_entry().owner == "ann"
    for other in ("bob", None):
        with stored_for(other):
            record(engine, root)
        assert the_entry().owner == "ann"


def test_labels_stay_if_an_analysis_is_made_again(keep: Keep, engine: Engine) -> None:
    root = keep("mine")
    assert the_entry().labels == NO_LABELS
    with labeled(RunLabels.of("llm", "main", "4f2a9c1", ["b", "a"])):
        record(engine, root)
        add_labels(engine, "mine")
    expected = RunLabels("llm", "main", "4f2a9c1", ("a", "b"))
    assert the_entry().labels == expected
    keep("mine", model_name="Again")
    record(engine, root)
    assert the_entry().labels == expected
    with labeled(RunLabels.of(commit="5")):
        record(engine, keep("new"))
    assert read_catalog().find("new").labels == RunLabels(commit="5")


def test_only_who_may_change_an_analysis_adds_labels(keep: Keep, engine: Engine) -> None:
    with stored_for("ann"):
        record(engine, keep("mine"))
    for owner, role, expected in (
        ("bob", Role.EDITOR, NO_LABELS),
        ("ann", Role.EDITOR, RunLabels("llm")),
    ):
        with stored_for(owner, role=role), labeled(RunLabels("llm")):
            add_labels(engine, "mine")
        assert the_entry().labels == expected


def test_what_is_unchanged_is_not_read_again(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep("mine")
    (analyses_dir() / "older").mkdir()
    (analyses_dir() / "older" / "manifest.json").write_text("{}", encoding="utf-8")
    first = read_catalog()
    assert first.broken == ("older",)

    def refuse(*_: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr(analysis_rows, "folder_bytes", refuse)
    monkeypatch.setattr(catalog, "manifests", refuse)
    assert read_catalog() == first


@pytest.mark.parametrize("text", ["{", "", "\x00", "\ud800", '{"schema_version": 1}', None])
def test_what_cannot_be_read_hides_nothing_and_can_be_pinned(keep: Keep, text: str | None) -> None:
    keep("mine")
    manifest = RunPaths(keep("broken")).manifest
    if text is None:
        manifest.unlink()
    else:
        manifest.write_bytes(text.encode(errors="surrogatepass"))
    found = read_catalog()
    assert ([entry.id for entry in found.entries], found.broken) == (["mine"], ("broken",))
    set_pinned("broken", is_pinned=True)
    assert pinned() == {"broken"}


def test_what_was_deleted_by_hand_is_gone_and_is_forgotten_later(
    keep: Keep, engine: Engine
) -> None:
    keep("stays")
    for name in ("gone", "replaced"):
        shutil.move(keep(name), analyses_dir() / f".{name}")
        keep(name)
        set_owner(name, "ann")
        shutil.rmtree(analyses_dir() / name)
    (analyses_dir() / ".replaced").rename(analyses_dir() / ".replaced.new-1234")
    shutil.rmtree(analyses_dir() / ".gone")
    assert the_entry().id == "stays"
    drop_missing(engine)
    keep("gone"), keep("replaced")
    owners = {entry.id: entry.owner for entry in read_catalog().entries}
    assert owners == {"stays": None, "gone": None, "replaced": "ann"}


def test_a_disk_that_is_missing_makes_nothing_forgotten(keep: Keep, engine: Engine) -> None:
    keep("mine")
    set_owner("mine", "ann")
    analyses_dir().rename(analyses_dir().with_name("elsewhere"))
    for is_there in (False, True):
        if is_there:
            analyses_dir().mkdir()
        assert read_catalog().entries == ()
        drop_missing(engine)
    analyses_dir().rmdir()
    analyses_dir().with_name("elsewhere").rename(analyses_dir())
    assert the_entry().owner == "ann"


def test_pins_of_an_earlier_version_are_taken_over_once(keep: Keep) -> None:
    keep("mine"), keep("other")
    pins_dir().mkdir()
    for name in ("mine", "later"):
        (pins_dir() / name).touch()
    assert pinned() == {"mine"}
    assert [path.name for path in pins_dir().iterdir()] == ["later"]
    keep("later")
    assert stored_row("later").is_pinned
    assert not pins_dir().exists()


def test_an_analysis_that_is_not_stored_is_a_sentence(engine: Engine) -> None:
    for change in (
        lambda: set_visibility("nothing", Visibility.TEAM),
        lambda: set_pinned("../nothing", is_pinned=True),
        lambda: read_catalog().find("nothing"),
    ):
        with pytest.raises(UnknownAnalysisError, match="nothing"):
            change()


def test_a_person_sees_what_is_theirs_or_the_teams(keep: Keep) -> None:
    for name in ("team", "private"):
        keep(name)
        set_owner(name, "ann")
    set_visibility("private", Visibility.PRIVATE)
    (analyses_dir() / "broken").mkdir()

    def seen(person: Person) -> tuple[set[str], tuple[str, ...]]:
        found = read_catalog().visible_to(person)
        return {entry.id for entry in found.entries}, found.broken

    assert seen(ANN) == ({"team", "private"}, ())
    assert seen(BOB) == ({"team"}, ())
    assert seen(LOCAL) == ({"team", "private"}, ("broken",))
    assert seen(Person(None, Role.NONE)) == (set(), ())


def test_those_who_see_folders_first_at_the_same_time_agree(keep: Keep, engine: Engine) -> None:
    for number in range(9):
        keep(f"copy{number}")
    together = Barrier(4)

    def look(_: int) -> int:
        together.wait()
        return len(stored_rows(engine))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(4))) == [9] * 4
    assert {entry.version for entry in read_catalog().entries} == {
        row.version for row in stored_rows(engine).values()
    }
