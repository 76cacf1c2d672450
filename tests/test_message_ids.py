"""Messages given by an id column, with values in other columns."""

import pytest

from jarvis.text.messages import MessageTable, names_in, resolve, to_text

TABLE = MessageTable(
    "test_message_ids",
    {
        "whole": "Move {name}{place:message}, please.",
        "place": " to {called_from:name}",
        "rows": "{rows:count row}",
        "top": "{top:list 2}{more:more}",
    },
)
VALUES = {"name": "a", "called_from": "Layer", "rows": 2, "place": TABLE.id("place")}


def test_an_id_gives_its_message_with_the_values_that_it_uses() -> None:
    made = resolve(TABLE.id("whole"), VALUES)
    assert made == TABLE("whole", name="a", place=TABLE("place", called_from="Layer"))
    assert to_text(made) == "Move `a` to `Layer`, please."


def test_the_names_in_a_message_are_those_of_its_parts_too() -> None:
    made = resolve(TABLE.id("whole"), VALUES)
    assert {*names_in(made)} == {"name", "place", "called_from"}
    several = TABLE("top", top=(made,), more=None)
    assert {*names_in(several)} == {"top", "more", "name", "place", "called_from"}


def test_an_empty_id_prints_nothing() -> None:
    assert to_text(TABLE.pick("whole", VALUES | {"place": ""})) == "Move `a`, please."
    assert resolve(None, VALUES) is None
    assert resolve([], VALUES) is None


def test_a_message_of_an_earlier_release_is_printed_with_its_values() -> None:
    of_other_values = TABLE("place", called_from="Layer").model_copy(update={"values": {"n": 3}})
    assert to_text(of_other_values) == "test_message_ids.place: n 3"


def test_several_ids_give_sentences_in_their_order() -> None:
    made = resolve([TABLE.id("rows"), TABLE.id("whole")], VALUES)
    assert to_text(made) == "2 rows Move `a` to `Layer`, please."


def test_a_sentence_in_place_of_a_message_is_printed_unchanged() -> None:
    prose = "The kernel is {slow}, e.g. it waits."
    assert to_text(resolve(prose, VALUES)) == prose


def test_an_unknown_message_id_is_rejected() -> None:
    with pytest.raises(KeyError):
        TABLE.id("elsewhere")


def test_lists_of_messages_are_cut_and_counted() -> None:
    rows = [TABLE("rows", rows=count) for count in (1, 2, 3)]
    assert to_text(TABLE("top", top=rows, more=0)) == "1 row, 2 rows and 1 more"
    assert to_text(TABLE("top", top=rows[:2], more=4)) == "1 row, 2 rows and 4 more"
