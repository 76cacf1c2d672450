"""What Streamlit runs for every page and every interaction."""

from jarvis.dashboard import shell

if __name__ == "__main__":
    shell.main()
