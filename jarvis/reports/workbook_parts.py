"""The parts of a workbook file (ECMA-376, SpreadsheetML) around the rows of its tabs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

BOLD, DECIMAL, SCIENTIFIC = 1, 2, 3
"""The numbers under which a workbook keeps the styles of cells; 0 is that without a style."""

_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_OOXML = "http://schemas.openxmlformats.org"
_MAIN = f"{_OOXML}/spreadsheetml/2006/main"
_RELATIONS = f"{_OOXML}/officeDocument/2006/relationships"
_PACKAGE = f"{_OOXML}/package/2006"
_CONTENT_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"

_STYLES = f"""{_HEAD}<styleSheet xmlns="{_MAIN}">
<numFmts count="1"><numFmt numFmtId="164" formatCode="#,##0.000"/></numFmts>
<fonts count="2">
<font><sz val="11"/><name val="Calibri"/><family val="2"/></font>
<font><b/><sz val="11"/><name val="Calibri"/><family val="2"/></font>
</fonts>
<fills count="2">
<fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>
</fills>
<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>
<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>
<cellXfs count="4">
<xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>
<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/>
<xf numFmtId="164" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>
<xf numFmtId="11" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>
</cellXfs>
<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles>
</styleSheet>"""


class Tab(NamedTuple):
    """A tab as the format spells it: ``rows`` are its ``row`` elements, the first the header.

    ``widths`` of the columns are in characters; ``height`` counts the rows with the header.
    """

    name: str
    widths: Sequence[int]
    rows: str
    height: int


def parts(tabs: Sequence[Tab]) -> Iterator[tuple[str, str]]:
    """Path in the package and content of every part of a workbook with these tabs."""
    paths = [f"worksheets/sheet{number}.xml" for number in range(1, len(tabs) + 1)]
    yield "[Content_Types].xml", _content_types(paths)
    office_document = ("officeDocument", "xl/workbook.xml")
    yield "_rels/.rels", _relationships([office_document])
    yield "xl/workbook.xml", _workbook(tabs)
    of_tabs = [("worksheet", path) for path in paths]
    yield "xl/_rels/workbook.xml.rels", _relationships([*of_tabs, ("styles", "styles.xml")])
    yield "xl/styles.xml", _STYLES
    for path, tab in zip(paths, tabs, strict=True):
        yield f"xl/{path}", _worksheet(tab)


def column_letters(number: int) -> str:
    """The name of a column counted from one: A, ..., Z, AA, AB."""
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _content_types(paths: Sequence[str]) -> str:
    kinds = {"workbook.xml": "sheet.main", "styles.xml": "styles"}
    kinds |= dict.fromkeys(paths, "worksheet")
    overrides = "".join(
        f'<Override PartName="/xl/{path}" ContentType="{_CONTENT_TYPE}.{kind}+xml"/>'
        for path, kind in kinds.items()
    )
    rels = "application/vnd.openxmlformats-package.relationships+xml"
    return (
        f'{_HEAD}<Types xmlns="{_PACKAGE}/content-types">'
        f'<Default Extension="rels" ContentType="{rels}"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>{overrides}</Types>'
    )


def _relationships(targets: Sequence[tuple[str, str]]) -> str:
    """Kind and path of the parts that a part refers to, as rId1, rId2, ..."""
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{_RELATIONS}/{kind}" Target="{path}"/>'
        for number, (kind, path) in enumerate(targets, start=1)
    )
    return f'{_HEAD}<Relationships xmlns="{_PACKAGE}/relationships">{rows}</Relationships>'


def _workbook(tabs: Sequence[Tab]) -> str:
    sheets = "".join(
        f'<sheet name={quoteattr(tab.name)} sheetId="{number}" r:id="rId{number}"/>'
        for number, tab in enumerate(tabs, start=1)
    )
    filters = "".join(
        f'<definedName name="_xlnm._FilterDatabase" localSheetId="{position}" hidden="1">'
        f"{escape(_filtered_cells(tab))}</definedName>"
        for position, tab in enumerate(tabs)
        if tab.widths
    )
    names = f"<definedNames>{filters}</definedNames>" if filters else ""
    return (
        f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}">'
        f"<bookViews><workbookView/></bookViews><sheets>{sheets}</sheets>{names}</workbook>"
    )


def _filtered_cells(tab: Tab) -> str:
    name = tab.name.replace("'", "''")
    return f"'{name}'!$A$1:${column_letters(len(tab.widths))}${tab.height}"


def _worksheet(tab: Tab) -> str:
    """A tab whose header stays in view and whose columns can be filtered."""
    columns = "".join(
        f'<col min="{number}" max="{number}" width="{width}" customWidth="1"/>'
        for number, width in enumerate(tab.widths, start=1)
    )
    cells = f"A1:{column_letters(len(tab.widths))}{tab.height}"
    return (
        f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
        '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
        f"</sheetView></sheetViews>{f'<cols>{columns}</cols>' if columns else ''}"
        f"<sheetData>{tab.rows}</sheetData>"
        f"{f'<autoFilter ref={quoteattr(cells)}/>' if columns else ''}</worksheet>"
    )
