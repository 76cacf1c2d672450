"""``python -m jarvis.cli``."""

from jarvis.cli import run

run()
