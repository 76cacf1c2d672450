"""Steps as lines of JSON, for a program that follows the progress."""

from pydantic import TypeAdapter, ValidationError

from jarvis.pipeline.steps import Step

_STEP = TypeAdapter(Step)


def line_of_step(step: Step) -> str:
    """Return the step as one line, without a line break."""
    return _STEP.dump_json(step).decode()


def step_of_line(line: str | bytes) -> Step | None:
    """Parse the step of such a line; None for any other line."""
    try:
        return _STEP.validate_json(line)
    except ValidationError:
        return None
