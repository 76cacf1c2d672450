"""Reproducers for a kernel team: the recorded calls of an operator, ready to be timed elsewhere."""

from jarvis.replay.package import Package, write_package, write_packages

__all__ = ["Package", "write_package", "write_packages"]
