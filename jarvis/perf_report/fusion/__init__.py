"""Fusion opportunities: chains of operators, epilogues of matrix products, unfused attention."""
