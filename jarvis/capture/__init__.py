"""Give replayed graphs the operators and shapes that capture traces record."""

from jarvis.capture.files import CaptureError, capture_alone, captures_sha256
from jarvis.capture.merged import MergedTrace, merge_captures

__all__ = ["CaptureError", "MergedTrace", "capture_alone", "captures_sha256", "merge_captures"]
