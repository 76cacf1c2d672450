"""Shaded cells reach the browser as pandas would send them."""

import pandas as pd
from streamlit.dataframe_util import convert_arrow_bytes_to_pandas_df
from streamlit.elements.lib.pandas_styler_utils import marshall_styler
from streamlit.proto.ArrowData_pb2 import ArrowData

from jarvis.dashboard.pages.category.shading import Css, shaded

BAD: Css = {"background-color": "#FCE4D6", "color": "#6B2A00"}
NONE: Css = {}


def test_the_styles_are_those_of_pandas() -> None:
    frame = pd.DataFrame({"name": ["a", "b", "c", "d"], "rate": [1.0, 2.0, None, 4.0]})
    ours, theirs = ArrowData(), ArrowData()
    marshall_styler(ours, shaded(frame, "rate", [BAD, NONE, NONE, BAD]), "")
    css = "; ".join(f"{name}: {value}" for name, value in BAD.items())
    styler = frame.style.set_uuid("shaded").apply(lambda _: [css, "", "", css], subset=["rate"])
    marshall_styler(theirs, styler, "")
    assert ours.styler.styles == theirs.styler.styles != ""


def test_the_same_rows_are_the_same_message() -> None:
    """The browser then finds them where it has them."""
    frame = pd.DataFrame({"rate": [1.0, 2.0]})
    sent = []
    for _ in range(2):
        message = ArrowData()
        marshall_styler(message, shaded(frame, "rate", [BAD, NONE]), "")
        sent.append(message.SerializeToString())
    assert sent[0] == sent[1]


def test_each_cell_is_sent_once() -> None:
    """Streamlit sends a text of each cell besides, unless the frame has none to give."""
    frame = pd.DataFrame({"name": ["a_kernel"], "rate": [1.0]})
    message = ArrowData()
    marshall_styler(message, shaded(frame, "rate", [BAD]), "")
    texts = convert_arrow_bytes_to_pandas_df(message.styler.display_values)
    assert texts.shape == frame.shape
    assert texts.isna().all(axis=None)
    assert frame.astype(str)["name"].tolist() == ["a_kernel"]
