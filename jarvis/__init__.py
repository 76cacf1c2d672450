"""Jarvis: turns a PyTorch profiler trace into decisions."""
