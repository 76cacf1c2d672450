"""The web server around Streamlit's pages: middleware, health, metrics."""
