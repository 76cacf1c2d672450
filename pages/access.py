"""Access page: API tokens and, for admins, the audit log."""

import streamlit as st

from jarvis.dashboard.pages.access import audit_log, tokens

st.title(":material/key: Access")
tokens.render()
audit_log.render()
