"""Give replayed graphs the operators and shapes that capture traces record."""

from jarvis.capture.files import CaptureError, capture_alone
from jarvis.capture.merged import MergedTrace, merge_captures

__all__ = ["CaptureError", "MergedTrace", "capture_alone", "merge_captures"]
