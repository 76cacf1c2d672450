"""The script that Streamlit runs, in a folder of its own.

Streamlit takes a folder ``pages`` beside its script for pages of the application, and reports the
real ones as not found.
"""
