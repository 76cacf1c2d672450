"""Status, owner and number of comments of a finding as badges, on the report and on its card."""

from jarvis.core.notes import FindingNotes, FindingStatus
from jarvis.dashboard.pages.report.finding_notes import STATUS_COLORS, STATUS_LABELS
from jarvis.dashboard.session.current_user import current_user
from jarvis.dashboard.session.state import Opened
from jarvis.reports.ranking import recommendations
from jarvis.server.note_actions import read_notes
from jarvis.text.markdown import escape


def badges(notes: FindingNotes) -> str:
    """Return status, owner and number of comments as Markdown badges."""
    found = []
    if notes.status is not FindingStatus.OPEN:
        found.append(f":{STATUS_COLORS[notes.status]}-badge[{STATUS_LABELS[notes.status]}]")
    if notes.owner:
        found.append(f":material/person: {escape(notes.owner)}")
    if notes.comments:
        found.append(f":material/comment: {len(notes.comments)}")
    return "".join(f" {badge}" for badge in found)


def finding_badges(now: Opened) -> dict[int, str]:
    """Return the badges of the findings that have notes, by the ``id`` of the finding."""
    notes = read_notes(current_user(), now.id).findings
    if not notes:
        return {}
    items = (item for item in recommendations(now.run) if item.key in notes)
    return {id(item.finding): badges(notes[item.key]) for item in items}
