"""The Streamlit dashboard of finished analyses. ``MAIN`` is the script that Streamlit runs."""

from pathlib import Path

MAIN = Path(__file__).parent / "entry" / "main.py"
