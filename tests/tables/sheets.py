"""Workbooks with one or two sheets, as few bytes as spreadsheets can be written in."""

import datetime as dt
import io
import zipfile
from html import escape

NS = "http://schemas.openxmlformats.org"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"


def zipped(parts):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return content.getvalue()


def xlsx(**sheets):
    """A workbook from rows of cells by the names of sheets; numbers with style 1 are dates."""

    def cell(value):
        if isinstance(value, dt.datetime):
            return f'<c s="1"><v>{(value - dt.datetime(1899, 12, 30)) / dt.timedelta(days=1)!r}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return "<c/>" if value is None else f"<c><v>{value}</v></c>"

    def sheet(rows):
        lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
        return f'<worksheet xmlns="{NS}/spreadsheetml/2006/main"><sheetData>{lines}</sheetData></worksheet>'

    main = f'xmlns="{NS}/spreadsheetml/2006/main"'
    relation = f'xmlns="{NS}/package/2006/relationships"'
    kind = f"{NS}/officeDocument/2006/relationships"
    names = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
    targets = "".join(
        f'<Relationship Id="r{i}" Type="{kind}/worksheet" Target="worksheets/sheet{i}.xml"/>' for i in range(1, len(sheets) + 1)
    )
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{NS}/package/2006/content-types"/>',
            "_rels/.rels": f"<Relationships {relation}>"
            f'<Relationship Id="r1" Type="{kind}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook {main} xmlns:r="{kind}"><sheets>{names}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f"<Relationships {relation}>{targets}"
            f'<Relationship Id="s" Type="{kind}/styles" Target="styles.xml"/></Relationships>',
            "xl/styles.xml": f'<styleSheet {main}><cellXfs><xf numFmtId="0"/><xf numFmtId="22"/></cellXfs></styleSheet>',
            **{f"xl/worksheets/sheet{i}.xml": sheet(rows) for i, rows in enumerate(sheets.values(), 1)},
        }
    )


def ods(rows):
    """A document with one sheet of text and numbers."""

    def cell(value):
        if isinstance(value, str):
            return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'
        return f'<table:table-cell office:value-type="float" office:value="{value}"/>'

    lines = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    spaces = " ".join(f'xmlns:{name}="{OFFICE}:{name}:1.0"' for name in ("office", "table", "text"))
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{OFFICE}:manifest:1.0"/>',
            "content.xml": f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="one">{lines}</table:table></office:spreadsheet></office:body></office:document-content>',
        }
    )
