"""The script that Streamlit runs, in a separate folder.

If a folder ``pages`` is beside the script, Streamlit takes its files for the application's pages
and reports the real pages as not found.
"""
