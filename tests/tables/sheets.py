"""Workbooks with one or two sheets, as few bytes as spreadsheets can be written in."""

import datetime as dt
import io
import struct
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


def xls(rows):
    """A workbook of the old kind (BIFF8): one sheet, in a compound file of one stream."""

    def record(kind, *parts):
        content = b"".join(parts)
        return struct.pack("<HH", kind, len(content)) + content

    def cell(row, column, value):
        place = struct.pack("<HHH", row, column, 0)
        if isinstance(value, str):
            return record(0x0204, place, struct.pack("<HB", len(value), 0), value.encode("latin-1"))
        return record(0x0203, place, struct.pack("<d", value))

    begin = lambda kind: record(0x0809, struct.pack("<HHHHII", 0x0600, kind, 0, 1997, 0, 6))
    sheet = b"".join([begin(0x10), *(cell(r, c, v) for r, row in enumerate(rows) for c, v in enumerate(row)), record(0x0A)])
    book = lambda at: b"".join([begin(0x05), record(0x0085, struct.pack("<IHBB", at, 0, 1, 0), b"A"), record(0x0A)])
    stream = (book(len(book(0))) + sheet).ljust(4096, b"\0")
    stream += b"\0" * (-len(stream) % 512)
    count, end, free = len(stream) // 512, 0xFFFFFFFE, 0xFFFFFFFF
    table = [0xFFFFFFFD, end, *range(3, 2 + count), end]
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16 + struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    head += struct.pack("<9I", 0, 1, 1, 0, 4096, end, 0, end, 0) + struct.pack("<109I", 0, *[free] * 108)

    def entry(name, kind, child, start, size):
        text = (name + "\0").encode("utf-16-le")
        place = struct.pack("<HBBIII", len(text), kind, 1, free, free, child)
        return text.ljust(64, b"\0") + place + b"\0" * 36 + struct.pack("<IQ", start, size)

    folder = entry("Root Entry", 5, 1, end, 0) + entry("Workbook", 2, free, 2, len(stream))
    return head + struct.pack("<128I", *table, *[free] * (128 - len(table))) + folder.ljust(512, b"\0") + stream


def xlsb(rows):
    """A workbook of the binary kind: one sheet."""

    def record(kind, *parts):
        content = b"".join(parts)
        number = bytes([kind]) if kind < 128 else bytes([kind & 0x7F | 0x80, kind >> 7])
        return number + bytes([len(content)]) + content

    wide = lambda text: struct.pack("<I", len(text)) + text.encode("utf-16-le")

    def cell(column, value):
        place = struct.pack("<II", column, 0)
        return record(6, place, wide(value)) if isinstance(value, str) else record(5, place, struct.pack("<d", value))

    lines = [
        record(0, struct.pack("<I", r).ljust(17, b"\0")) + b"".join(cell(c, v) for c, v in enumerate(row))
        for r, row in enumerate(rows)
    ]
    size = record(148, struct.pack("<IIII", 0, len(rows) - 1, 0, len(rows[0]) - 1))
    sheet = b"".join([record(129), size, record(145), *lines, record(146), record(130)])
    one = record(156, struct.pack("<II", 0, 1), wide("r1"), wide("A"))
    kind, relation = f"{NS}/officeDocument/2006/relationships", f'xmlns="{NS}/package/2006/relationships"'
    link = f'<Relationship Id="r1" Type="{kind}/worksheet" Target="worksheets/sheet1.bin"/>'
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{NS}/package/2006/content-types"/>',
            "xl/workbook.bin": b"".join([record(131), record(143), one, record(144), record(132)]),
            "xl/_rels/workbook.bin.rels": f"<Relationships {relation}>{link}</Relationships>",
            "xl/worksheets/sheet1.bin": sheet,
        }
    )
