"""The *Compare* page: a target against a reference."""
