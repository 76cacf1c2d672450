"""``python -m jarvis.cli``."""

from jarvis.cli import main

raise SystemExit(main())
