"""Recorded calls as framework-independent descriptions that can be replayed."""
