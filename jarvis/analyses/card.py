"""The stored description of a third-party analysis, which renders its page without its code.

The code of such an analysis runs only while a trace is analyzed; opening the run requires neither
the extension file nor the package.
"""

from typing import Self

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from jarvis.analyses.base import Analysis, Claim, Panel
from jarvis.findings import Tier
from jarvis.schemas import FLAG, INTEGER, NAMES, NUMBER, TEXT, Column

_DTYPES = {"text": TEXT, "number": NUMBER, "integer": INTEGER, "flag": FLAG, "names": NAMES}


class Detail(BaseModel):
    """A column that an analysis adds to its rows."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    label: str
    kind: str
    unit: str = ""
    format: str = ""
    meaning: str = ""

    @field_validator("kind", mode="before")
    @classmethod
    def _kind_of(cls, value: object) -> object:
        kinds = {str(dtype): kind for kind, dtype in _DTYPES.items()}
        if not isinstance(value, (pl.DataType, type)):
            return value
        if str(value) not in kinds:
            raise ValueError(f"use one of {', '.join(kinds)}, not {value}")
        return kinds[str(value)]

    def column(self) -> Column:
        """Return the column as a schema column."""
        dtype = _DTYPES[self.kind]
        return Column(self.name, self.label, dtype, self.unit, self.format, self.meaning)


class AnalysisManifest(BaseModel):
    """An analysis without its code."""

    model_config = ConfigDict(frozen=True, revalidate_instances="always")

    key: str
    title: str = Field(min_length=1, max_length=80)
    icon: str = Field(pattern=r"^:material/[a-z0-9_]+:$")
    tier: Tier
    claim: Claim | None
    panels: tuple[Panel, ...]
    details: tuple[Detail, ...]
    needs: tuple[str, ...]
    also_in: tuple[str, ...]

    @classmethod
    def of(cls, analysis: Analysis) -> Self:
        """Return the manifest of an analysis.

        Raises:
            pydantic.ValidationError: A field has a wrong type.
        """
        details = [
            {**{name: getattr(column, name) for name in Detail.model_fields if name != "kind"}}
            | {"kind": column.dtype}
            for column in analysis.details
        ]
        fields = {name: getattr(analysis, name) for name in cls.model_fields}
        return cls.model_validate({**fields, "details": details})

    def analysis(self) -> Analysis:
        """Return an analysis that has a page but no checks to run."""
        return Analysis(
            title=self.title,
            icon=self.icon,
            checks=(),
            claim=self.claim,
            panels=self.panels,
            needs=self.needs,
            also_in=self.also_in,
            details=tuple(detail.column() for detail in self.details),
            key=self.key,
            tier=self.tier,
        )
