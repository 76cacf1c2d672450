"""Replay the recording with changed durations to find what a step gains."""
