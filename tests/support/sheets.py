"""Excel files, as small as the format allows: no package that is installed writes them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"

Row = Sequence[str | float | None]


def write_sheets(path: Path, **sheets: Sequence[Row]) -> None:
    """Write an Excel file with these sheets; None is an empty cell, an empty row is one in the sheet."""
    names = "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, 1))
    files = {f"worksheets/{at}.xml": _sheet(rows) for at, rows in enumerate(sheets.values(), 1)}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{_PACKAGE}/content-types"/>')
        archive.writestr("_rels/.rels", _relations({"r1": ("officeDocument", "xl/workbook.xml")}))
        archive.writestr("xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{names}</sheets></workbook>')
        targets = {f"r{at}": ("worksheet", name) for at, name in enumerate(files, 1)}
        archive.writestr("xl/_rels/workbook.xml.rels", _relations(targets))
        for name, content in files.items():
            archive.writestr(f"xl/{name}", content)


def _relations(targets: dict[str, tuple[str, str]]) -> str:
    entries = "".join(
        f'<Relationship Id="{key}" Type="{_OFFICE}/{kind}" Target="{target}"/>' for key, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{entries}</Relationships>'


def _sheet(rows: Sequence[Row]) -> str:
    lines = []
    for number, row in enumerate(rows, 1):
        cells = ""
        for column, value in enumerate(row):
            place = f"{chr(65 + column)}{number}"
            if isinstance(value, str):
                cells += f'<c r="{place}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
            elif isinstance(value, bool):
                cells += f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
            elif value is not None:
                cells += f'<c r="{place}"><v>{value!r}</v></c>'
        lines.append(f'<row r="{number}">{cells}</row>')
    return f'<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
