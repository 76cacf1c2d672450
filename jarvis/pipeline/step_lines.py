"""A step as a line of JSON, for a program that follows the work from elsewhere."""

from pydantic import TypeAdapter, ValidationError

from jarvis.pipeline.steps import Step

_STEP = TypeAdapter(Step)


def line_of_step(step: Step) -> str:
    """The step as one line, without its end."""
    return _STEP.dump_json(step).decode()


def step_of_line(line: str | bytes) -> Step | None:
    """The step that such a line holds; None for any other line."""
    try:
        return _STEP.validate_json(line)
    except ValidationError:
        return None
