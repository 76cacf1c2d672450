"""Access: API tokens, and for admins who did what."""

import streamlit as st

from jarvis.dashboard import access_tokens, audit_log

st.title(":material/key: Access")
access_tokens.render()
audit_log.render()
