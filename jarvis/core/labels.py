"""Labels of an analysis: what its run belongs to, as its users name it.

Unlike options, labels do not change the result or the id of an analysis, and can be changed later.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from jarvis.core.errors import JarvisError

MAX_TAGS = 20
MAX_PROJECT_CHARS, MAX_BRANCH_CHARS, MAX_COMMIT_CHARS, MAX_TAG_CHARS = 100, 200, 64, 50

_SIGNS = "._-/:+=@#"
_SIGNS_OF_COMMITS = "._-+"
_MAX_SHOWN_CHARS = 40


class LabelError(JarvisError):
    """A label is too long, has other characters, or there are too many."""


@dataclass(frozen=True, slots=True)
class RunLabels:
    """Project, branch, commit and tags of an analysis; None and empty mean not set.

    ``of`` makes labels from input.
    """

    project: str | None = None
    branch: str | None = None
    commit: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        project: str | None = None,
        branch: str | None = None,
        commit: str | None = None,
        tags: Iterable[str] = (),
    ) -> Self:
        """Return labels without surrounding spaces, and with each tag once, sorted.

        Raises:
            LabelError: a label is not valid.
        """
        named = {_label("tag", tag, MAX_TAG_CHARS) for tag in tags} - {None}
        if len(named) > MAX_TAGS:
            raise LabelError(f"There are {len(named)} tags. Give at most {MAX_TAGS}.")
        return cls(
            project=_label("project", project, MAX_PROJECT_CHARS),
            branch=_label("branch", branch, MAX_BRANCH_CHARS, has_spaces=False),
            commit=_label("commit", commit, MAX_COMMIT_CHARS, _SIGNS_OF_COMMITS, has_spaces=False),
            tags=tuple(sorted(tag for tag in named if tag is not None)),
        )

    def __bool__(self) -> bool:
        """Return whether any label is set."""
        return self != NO_LABELS

    def over(self, earlier: "RunLabels") -> "RunLabels":
        """Return the earlier labels, with those that are set here instead, and the tags of both.

        Raises:
            LabelError: there are too many tags.
        """
        return RunLabels.of(
            self.project or earlier.project,
            self.branch or earlier.branch,
            self.commit or earlier.commit,
            (*earlier.tags, *self.tags),
        )

    def chosen(self) -> dict[str, Any]:
        """Return the labels that are set by name, tags as a list."""
        values = asdict(self) | {"tags": list(self.tags)}
        return {name: value for name, value in values.items() if value}

    def words(self) -> Iterator[str]:
        """Yield the labels for display: ``project``, ``branch@commit``, each tag with ``#``."""
        if self.project:
            yield self.project
        if self.branch or self.commit:
            yield "@".join(each for each in (self.branch, self.commit) if each)
        yield from (f"#{tag}" for tag in self.tags)


NO_LABELS = RunLabels()
LABEL_NAMES = tuple(field.name for field in fields(RunLabels))


def _label(
    name: str, text: str | None, max_chars: int, signs: str = _SIGNS, *, has_spaces: bool = True
) -> str | None:
    """Return a valid label; None for an empty one."""
    label = unicodedata.normalize("NFC", (text or "").strip())
    if len(label) > max_chars:
        shown = label[:_MAX_SHOWN_CHARS]
        raise LabelError(
            f"The {name} {shown!r}... has {len(label)} characters. Use at most {max_chars}."
        )
    allowed = f"{signs} " if has_spaces else signs
    wrong = next((char for char in label if not _is_letter(char) and char not in allowed), None)
    if wrong is not None:
        spaces = ", spaces" if has_spaces else ""
        raise LabelError(
            f"The {name} {label[:_MAX_SHOWN_CHARS]!r} contains {wrong!r}. "
            f"Use letters, digits{spaces} and {' '.join(signs)}."
        )
    return label or None


def _is_letter(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char).startswith("M")
