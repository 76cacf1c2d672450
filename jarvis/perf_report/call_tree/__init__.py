"""Calls around and below an operation, and GPU time by launching call."""
