"""Calls around and below an operation, and GPU time by the calls that launched it."""
