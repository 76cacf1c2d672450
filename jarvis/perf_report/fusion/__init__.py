"""Chains of operators, matrix products with their followers, and unfused attention."""
