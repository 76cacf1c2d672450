"""Inference steps of a recording: their phases, rates, graph replays and layers."""
