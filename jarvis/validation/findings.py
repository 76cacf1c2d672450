"""Checks of the findings: that each is complete, and the same in every file and in one order."""

import html
from collections import Counter
from collections.abc import Iterator

from jarvis.validation.check import Check, Problem, gain_ms, key_of, title
from jarvis.validation.run_files import Json, RunFiles

TEXTS = ("title", "issue", "algorithmic", "kernel")
"""The required texts of a finding."""

LOWEST = "Low"
"""Findings that were and are of this priority get no card in the layout of TraceLens's agent."""

MARKS = "\\`*"
"""Characters of Markdown that a title in a report has in addition."""

EQUAL_DIGITS = 3
"""Savings in ms that are equal in so many decimals do not decide the order."""


def results_are_the_manifest(run: RunFiles) -> Iterator[Problem]:
    """Every analysis of the manifests has its results, with as many findings."""
    file = run.name(run.paths.results)
    found = {key: len(result["findings"]) for key, result in run.results.items()}
    expected = {entry["key"]: entry["finding_count"] for entry in run.manifest["categories"]}
    if found != expected:
        yield Problem(file, f"It has {found} findings; {expected} expected.")
    for entry in run.categories:
        count = found.get(entry["name"])
        if entry.get("finding_count", count) != count:
            text = f"{entry['name']} has {entry['finding_count']} findings; {count} expected."
            yield Problem(run.name(run.paths.category_manifests[0]), text)


def findings_are_complete(run: RunFiles) -> Iterator[Problem]:
    """Every finding has a title, an issue, an action on both paths, and the key of its analysis; an
    analysis that failed has none.
    """
    file = run.name(run.paths.results)
    for key, result in run.results.items():
        for finding in result["findings"]:
            if missing := [name for name in TEXTS if not finding[name]]:
                yield Problem(file, f"{title(finding)} has no {', '.join(missing)}.")
            if finding["category"] != key or result["status"] != "OK":
                text = f"{title(finding)} is of {finding['category']}, but listed under {key}"
                yield Problem(file, f"{text}, whose status is {result['status']}.")


def findings_are_distinct(run: RunFiles) -> Iterator[Problem]:
    """No two findings of an analysis repeat the same statement about the same rows: a saving is
    stated once."""
    subjects = Counter(map(key_of, run.findings))
    for (check, category, named, *_), count in subjects.items():
        if count > 1:
            text = f"{named!r} of the check {check} in {category} occurs {count} times."
            yield Problem(run.name(run.paths.results), text)


def findings_are_ordered_by_their_saving(run: RunFiles) -> Iterator[Problem]:
    """In every file, findings are in the order of the step time that they save; those that make the
    others uncertain come first, those without a known saving last."""
    lists = {run.name(run.paths.priority_data[0]): run.priority_data["findings"]}
    for key, result in run.results.items():
        lists[f"{run.name(run.paths.results)} ({key})"] = result["findings"]
        lists[run.name(run.paths.metrics(key))] = run.listed_findings(key)
    for file, findings in lists.items():
        places = [_place(finding) for finding in findings]
        if places != sorted(places):
            saved_ms = [gain_ms(finding) for finding in findings]
            yield Problem(file, f"The findings save {saved_ms} ms; falling savings expected.")


def findings_are_the_same_in_every_file(run: RunFiles) -> Iterator[Problem]:
    """The files in the layout of TraceLens's agent list the findings of the results that get a
    card, with the same title, operations, saving and priority."""
    compute: list[Json] = []
    for key, result in run.results.items():
        cards = [finding for finding in result["findings"] if _has_card(finding)]
        listed = run.listed_findings(key)
        yield from _differences(run.name(run.paths.metrics(key)), cards, listed)
        compute += cards if result["tier"] == "compute" else ()
    file = run.name(run.paths.priority_data[0])
    yield from _differences(file, compute, run.priority_data["findings"])


def summary_names_the_first_finding(run: RunFiles) -> Iterator[Problem]:
    """The summary of the fair report names the finding that saves most, before any other; if all
    are of low priority, it need not name one."""
    path = run.paths.standalone_report("fair")
    if not path.is_file() or all(finding["priority"] == LOWEST for finding in run.findings):
        return
    summary = _plain(path.read_text(encoding="utf-8")).partition("\n## ")[2].partition("\n## ")[0]
    places = {
        place: finding["title"]
        for finding in sorted(run.findings, key=_place, reverse=True)
        if (place := summary.find(_plain(finding["title"]))) >= 0
    }
    urgent = [finding for finding in run.findings if finding["priority"] != LOWEST]
    firsts = [min(map(_place, some)) for some in (run.findings, urgent)]
    expected = {finding["title"] for finding in run.findings if _place(finding) in firsts}
    named = places[min(places)] if places else None
    if named not in expected:
        text = f"The summary names {named!r} first; one of {sorted(expected)} expected."
        yield Problem(run.name(path), text)


def _plain(text: str) -> str:
    """Return a text without the marks and escapes of Markdown."""
    return html.unescape(text).translate(dict.fromkeys(map(ord, MARKS)))


def _differences(file: str, cards: list[Json], listed: list[Json]) -> Iterator[Problem]:
    expected = {key_of(finding): finding for finding in cards}
    found = {key_of(finding): finding for finding in listed}
    for key in expected.keys() ^ found.keys():
        place = "the results, but not here" if key in expected else "here, but not in the results"
        yield Problem(file, f"{key[2]!r} of {key[1]} is in {place}.")
    for key in expected.keys() & found.keys():
        finding, entry = expected[key], found[key]
        for name in sorted(finding.keys() & entry.keys()):
            if finding[name] != entry[name]:
                text = f"{key[2]!r} has {name} {entry[name]}; {finding[name]} expected."
                yield Problem(file, text)
        saved_ms = gain_ms(finding) if (finding["impact"] or {}).get("step_ms") else None
        if entry.get("step_saved_ms") != saved_ms:
            text = f"{key[2]!r} saves {entry.get('step_saved_ms')} ms; {saved_ms} ms expected."
            yield Problem(file, text)


def _place(finding: Json) -> tuple[bool, bool, float]:
    saved_ms = gain_ms(finding)
    return not finding.get("leads"), saved_ms is None, -round(saved_ms or 0.0, EQUAL_DIGITS)


def _has_card(finding: Json) -> bool:
    return {finding["priority"], finding.get("priority_before") or LOWEST} != {LOWEST}


CHECKS = (
    Check(results_are_the_manifest),
    Check(findings_are_complete),
    Check(findings_are_distinct),
    Check(findings_are_ordered_by_their_saving, needs_steps=True),
    Check(findings_are_the_same_in_every_file, needs_steps=True),
    Check(summary_names_the_first_finding, needs_steps=True),
)
