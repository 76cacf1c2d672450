"""The *Replay* page."""
