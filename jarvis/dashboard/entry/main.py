"""Entry script; Streamlit runs it for every page and interaction."""

from jarvis.dashboard import shell

if __name__ == "__main__":
    shell.main()
