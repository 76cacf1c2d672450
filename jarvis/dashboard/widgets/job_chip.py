"""Number of active jobs, shown on every page."""

from jarvis.core.errors import JarvisError
from jarvis.dashboard.session import navigation
from jarvis.dashboard.session.current_user import current_user
from jarvis.dashboard.session.polling import polled
from jarvis.server.database import ACTIVE, database
from jarvis.server.jobs import queue
from jarvis.text.format import counted

POLL_S = 5.0


def job_chip() -> None:
    """Draw a link to the jobs page while jobs wait or run; nothing if the database fails."""
    try:
        if _active_jobs():
            _live()
    except JarvisError:
        return


@polled(POLL_S)
def _live() -> None:
    count = _active_jobs()
    if count:
        label = f"{counted(count, 'job')} in progress"
        navigation.link(navigation.JOBS, label, icon=":material/progress_activity:")


def _active_jobs() -> int:
    by_state = queue.counts(database(), current_user())
    return sum(by_state.get(state, 0) for state in ACTIVE)
