"""Checks of what findings refer to: operations, kernels, places and facts of the trace."""

import re
from collections.abc import Callable, Iterator
from functools import cache

from jarvis.preconditions import Facts, Subject
from jarvis.validation.check import Check, Problem, is_close, messages, quantities, texts, title
from jarvis.validation.run_files import RunFiles

KERNELS = ("kernel", "main_kernel", "kernels", "helpers")
"""Values of messages that name kernels."""

OPERATORS = ("operator", "operators", "product", "step", "neighbors")
"""Values of messages that name operators."""

PLACES = ("place", "called_from")
"""Values of messages that name modules from outside to inside."""

CALLS = ("frame", "site", "host_call", "annotation", "collective")
"""Values of messages that name a frame, another host call, an annotation or a collective."""

BETWEEN_PLACES = " / "
LINE = re.compile(r"[^\s`(]{1,200}\.py\(\d{1,9}\)(?:: [\w<>.]{1,200})?")
"""A line of source code, as the profiler names it: ``model.py(7): forward``."""

RUNTIME_CALL = re.compile(r"(?:(?:cuda|hip)[A-Z]|cu[A-Z][a-z])\w*")
"""Calls of the runtime or the driver of the GPU."""


def operations_exist(run: RunFiles) -> Iterator[Problem]:
    """Every operation of a finding is a row of the table, with its name, calls and time."""
    file = run.name(run.paths.results)
    for finding in run.findings:
        for operation in finding["operations"]:
            row = run.operations.get(operation["uid"])
            found = operation["name"], operation["operation_count"]
            if row is None or found != (row["name"], row["operation_count"]):
                text = f"{title(finding)} is about {found}, which is no row {operation['uid']} of"
                yield Problem(file, f"{text} the operations.")
        for uid in finding.get("shared_uids") or ():
            if uid not in run.operations:
                yield Problem(file, f"{title(finding)} shares the time of row {uid}: no such row.")


def operations_are_no_runtime_calls(run: RunFiles) -> Iterator[Problem]:
    """No operation, top operation or category is a call of the GPU's runtime, such as
    ``cudaLaunchKernel``: kernels without an operator have their own names."""
    tops = run.category_manifest.get("top_operations", ())
    named = {
        run.name(run.paths.table("operations")): [row["name"] for row in run.operations.values()],
        run.name(run.paths.category_manifests[0]): [
            *(top["name"] for top in tops),
            *(category["display_name"] for category in run.categories),
        ],
        run.name(run.paths.manifest): [top["name"] for top in run.manifest["top_operations"]],
    }
    for file, names in named.items():
        for name in filter(RUNTIME_CALL.fullmatch, names):
            yield Problem(file, f"{name} is a call of the runtime, not an operation.")


def operations_of_a_finding_take_its_time(run: RunFiles) -> Iterator[Problem]:
    """The operations of a finding take the time that the finding states."""
    for finding in run.findings:
        total_ms = dict(quantities(finding)).get("gpu_time_ms")
        if isinstance(total_ms, float) and finding["operations"]:
            expected_ms = run.operations_ms(each["uid"] for each in finding["operations"])
            if not is_close(total_ms, expected_ms):
                text = f"{title(finding)} gives {total_ms} ms; {expected_ms} ms expected."
                yield Problem(run.name(run.paths.results), text)


def kernels_exist(run: RunFiles) -> Iterator[Problem]:
    """Every kernel that a message names runs in the trace."""
    yield from _missing(run, KERNELS, run.names.contains, "kernel {!r}, which does not run")


def operators_exist(run: RunFiles) -> Iterator[Problem]:
    """Every operator that a message names is called in the trace."""
    yield from _missing(run, OPERATORS, run.names.has, "operator {!r}, which is not called")


def places_exist(run: RunFiles) -> Iterator[Problem]:
    """Every module, call, annotation and source line that a finding names is in the tables."""
    yield from _missing(run, CALLS, run.names.contains, "call {!r}, which is not recorded")

    def has_places(text: str) -> bool:
        return all(map(run.names.has, text.split(BETWEEN_PLACES)))

    yield from _missing(run, PLACES, has_places, "place {!r}, which is not recorded")
    for finding in run.findings:
        shown = (str(value) for _, value in quantities(finding))
        for text in (*shown, *(text for _, text in texts(finding))):
            for line in LINE.findall(text):
                if not run.names.contains(line):
                    text = f"{title(finding)} names the line {line!r}, which is not recorded."
                    yield Problem(run.name(run.paths.results), text)


def actions_meet_their_preconditions(run: RunFiles) -> Iterator[Problem]:
    """What a finding advises has its preconditions in the tables; they name known facts."""
    facts = Facts(cache(run.table))
    file = run.name(run.paths.results)
    for finding in run.findings:
        operations = [operation["uid"] for operation in finding["operations"]]
        uids = tuple(operations or finding.get("shared_uids") or ())
        subject = Subject(uids, dict(quantities(finding)).get("direction"))
        needs = {need: None for message in messages(finding) for need in message.get("needs", ())}
        for need in needs:
            try:
                holds = facts.hold([need], subject)
            except ValueError as error:
                yield Problem(file, f"{title(finding)}: {error}.")
            else:
                if not holds:
                    text = f"{title(finding)} advises what needs {need}, which does not hold."
                    yield Problem(file, text)


def _missing(
    run: RunFiles, keys: tuple[str, ...], has: Callable[[str], bool], problem: str
) -> Iterator[Problem]:
    """Yield the texts of these values of messages that the tables do not have."""
    for finding in run.findings:
        for name, text in texts(finding):
            if name in keys and not has(text):
                named = problem.format(text)
                yield Problem(run.name(run.paths.results), f"{title(finding)} names the {named}.")


CHECKS = (
    Check(operations_exist),
    Check(operations_are_no_runtime_calls, needs_steps=True),
    Check(operations_of_a_finding_take_its_time),
    Check(kernels_exist),
    Check(operators_exist, needs_steps=True),
    Check(places_exist, needs_steps=True),
    Check(actions_meet_their_preconditions),
)
