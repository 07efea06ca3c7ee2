"""Tables as people write them, and what must be read from each: columns with their types and values, and what is said."""

import datetime as dt
from typing import Any, NamedTuple

D, M, UTC = dt.date, dt.datetime, dt.UTC
DATE, MOMENT, IN_UTC, FLOAT, INT, TEXT, BOOL = "Date", "Datetime", "Datetime UTC", "Float64", "Int64", "String", "Boolean"


class Case(NamedTuple):
    """A table, its columns by name as (type, values), pieces of the notes in their order, and options of reading."""

    name: str
    content: str | bytes
    columns: dict[str, tuple[str, list[Any]]]
    notes: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    suffix: str = ".csv"


PLAIN = {"x": (INT, [1, 3]), "y": (FLOAT, [2.5, 4.5])}
COMMA = "a comma is the decimal mark: 1,5 is read as 1.5"

CASES = [
    # separators, headers and lines around the table
    Case("commas", "x,y\n1,2.5\n3,4.5\n", PLAIN),
    Case("blanks after commas", "x, y\n1, 2.5\n3, 4.5\n", PLAIN),
    Case("semicolons", "x;y\n1;2.5\n3;4.5\n", PLAIN),
    Case("tabs in a file called CSV", "x\ty\n1\t2.5\n3\t4.5\n", PLAIN),
    Case(
        "TSV with commas in its cells",
        "x\tw\n1\ta,b\n3\tc,d\n",
        {"x": (INT, [1, 3]), "w": (TEXT, ["a,b", "c,d"])},
        suffix=".tsv",
    ),
    Case("bars", "x|y\n1|2.5\n3|4.5\n", PLAIN, ("bars stand between the columns",)),
    Case("a table in Markdown", "| x | y |\n|---|:-:|\n| 1 | 2.5 |\n| 3 | 4.5 |\n", PLAIN, ("bars stand between",)),
    Case("blanks", "  x    y\n  1  2.5\n  3  4.5\n", PLAIN, ("blanks stand between the columns",)),
    Case(
        "blanks under a comment that names them",
        "# x y\n1 2.5\n3 4.5\n",
        PLAIN,
        ("blanks", "the last comment names the columns"),
    ),
    Case(
        "names of rows without a name, as R writes them",
        "x y\na 1 2.5\nb 3 4.5\n",
        {"row": (TEXT, ["a", "b"]), **PLAIN},
        ("blanks", "the first column has no name: it is called 'row'"),
    ),
    Case("what Excel writes first", "sep=;\nx;y\n1;2.5\n3;4.5\n", PLAIN),
    Case(
        "comments",
        "# made by a logger\n# in May\nx,y\n1,2.5\n# a pause\n3,4.5\n",
        PLAIN,
        ("3 lines of comment are passed over",),
    ),
    Case("a title", "Station 7\n\nx,y\n1,2.5\n3,4.5\n", PLAIN, ("line 1 is a title, 'Station 7': passed over",)),
    Case("a row of units", "x,y\n[m],°C\n1,2.5\n3,4.5\n", PLAIN, ("the first row holds units ([m], °C): passed over",)),
    Case("quotes around all", '"x","y"\n"1","2.5"\n"3","4.5"\n', PLAIN),
    Case(
        "quotes with separators and lines inside",
        'w,y\n"a, b",2.5\n"c ""d""",4.5\n"e\n\nf",6.5\n',
        {"w": (TEXT, ["a, b", 'c "d"', "e\n\nf"]), "y": (FLOAT, [2.5, 4.5, 6.5])},
    ),
    Case("separators at the ends of lines", "x,y\n1,2.5,\n3,4.5,\n", PLAIN),
    Case("empty lines and cells", "x,y\n\n1,2.5\n,,\n3,4.5\n\n", PLAIN),
    Case("a short line", "x,y\n1,2.5\n3\n", {"x": (INT, [1, 3]), "y": (FLOAT, [2.5, None])}, ("line 3 has fewer cells",)),
    Case("a name that is missing", "x,\n1,2.5\n3,4.5\n", {"x": (INT, [1, 3]), "column 2": (FLOAT, [2.5, 4.5])}),
    Case("lines that end as on old machines", "x,y\r1,2.5\r3,4.5\r", PLAIN),
    # letters
    Case("a mark of UTF-8", "\ufeffx,y\n1,2.5\n3,4.5\n".encode(), PLAIN),
    Case("UTF-16", "x,y\n1,2.5\n3,4.5\n".encode("utf-16"), PLAIN),
    Case("UTF-16 without a mark", "x,y\n1,2.5\n3,4.5\n".encode("utf-16-le"), PLAIN),
    Case(
        "Latin-1",
        "größe,y\n1,2.5\n3,4.5\n".encode("latin-1"),
        {"größe": (INT, [1, 3]), "y": (FLOAT, [2.5, 4.5])},
        ("the file is not UTF-8: its letters are read as Windows-1252",),
    ),
    # numbers
    Case("decimal commas", "x;y\n1;2,5\n3;4,5\n", PLAIN, (f"column 'y': {COMMA}",)),
    Case(
        "decimal commas and points between thousands",
        "x;y\n1;1.234,5\n3;12,5\n",
        {"x": (INT, [1, 3]), "y": (FLOAT, [1234.5, 12.5])},
        ("points stand between thousands: 1.234 is read as 1234", COMMA),
    ),
    Case("three digits after a point stay so", "x;y\n1;1.234\n3;2.345\n", {"x": (INT, [1, 3]), "y": (FLOAT, [1.234, 2.345])}),
    Case(
        "three digits after a comma, between semicolons",
        "x;y\n1;1,234\n3;2,345\n",
        {"x": (INT, [1, 3]), "y": (FLOAT, [1.234, 2.345])},
        (COMMA,),
    ),
    Case(
        "commas between thousands",
        'x,y\n1,"1,234"\n3,"2,345,678.5"\n',
        {"x": (INT, [1, 3]), "y": (FLOAT, [1234.0, 2345678.5])},
        ("column 'y': commas stand between thousands: 1,234 is read as 1234",),
    ),
    Case(
        "blanks and quotes between thousands",
        "x;y\n1 000;2'500.5\n3\u202f000;4'500.5\n",
        {"x": (FLOAT, [1000.0, 3000.0]), "y": (FLOAT, [2500.5, 4500.5])},
        ("columns 'x', 'y': marks between thousands are passed over",),
    ),
    Case(
        "money and per cent",
        "x,y\n$1,5%\n-$3.50,7.5 %\n",
        {"x": (FLOAT, [1.0, -3.5]), "y": (FLOAT, [5.0, 7.5])},
        ("column 'x': currency signs are passed over", "column 'y': per cent signs are passed over: 5% is read as 5"),
    ),
    Case(
        "money of an accountant",
        "x\n€ 5\n(3)\n",
        {"x": (FLOAT, [5.0, -3.0])},
        ("currency signs", "numbers in brackets are negative"),
    ),
    Case("a unit in every cell", "x,y\n1,2.5 kg\n3,4.5 kg\n", PLAIN, ("column 'y': the unit 'kg' is passed over",)),
    Case("a minus that is a dash", "x\n−1.5\n2\n", {"x": (FLOAT, [-1.5, 2.0])}),
    Case("exponents and signs", "x\n1e3\n+2.5E-1\n", {"x": (FLOAT, [1000.0, 0.25])}),
    Case("keys with zeros", "key,y\n007,2.5\n011,4.5\n", {"key": (INT, [7, 11]), "y": (FLOAT, [2.5, 4.5])}),
    Case("one column of decimal commas", "y\n1,5\n2,5\n", {"y": (FLOAT, [1.5, 2.5])}, (COMMA,)),
    # missing values
    Case(
        "the usual gaps",
        "x,y,z\nNA,2.5,a\n3,?,b\n4,NULL,-\n",
        {"x": (INT, [None, 3, 4]), "y": (FLOAT, [2.5, None, None]), "z": (TEXT, ["a", "b", None])},
    ),
    Case(
        "n.a. among numbers",
        "x\n1.5\nn.a.\n2.5\n",
        {"x": (FLOAT, [1.5, None, 2.5])},
        ("column 'x': 'n.a.' is taken as missing (1 cell)",),
    ),
    Case(
        "what Excel writes for errors",
        "x\n1.5\n#DIV/0!\n#N/A\n",
        {"x": (FLOAT, [1.5, None, None])},
        ("'#DIV/0!', '#N/A' is taken as missing (2 cells)",),
    ),
    Case(
        "one word among many numbers",
        "x\n1\n2\nfault\n4\n5\n6\n",
        {"x": (INT, [1, 2, None, 4, 5, 6])},
        ("'fault' is taken as missing",),
    ),
    Case(
        "as many words as numbers",
        "x\n1\na\n2\nb\n",
        {"x": (TEXT, ["1", "a", "2", "b"])},
        ("numbers and words such as 'a', 'b': read as text",),
    ),
    Case(
        "-999 far from the rest",
        "x,y\n1,20.5\n2,-999\n3,22.5\n4,-9999\n",
        {"x": (INT, [1, 2, 3, 4]), "y": (FLOAT, [20.5, None, 22.5, None])},
        ("column 'y': -999, -9999 is taken as missing: it lies far outside of the other values",),
    ),
    Case("-999 among its like", "y\n-1200\n-999\n800\n", {"y": (INT, [-1200, -999, 800])}),
    Case("true and false", "x\ntrue\nFALSE\n", {"x": (BOOL, [True, False])}),
    # dates
    Case("ISO dates", "t\n2020-01-31\n2020-02-01\n", {"t": (DATE, [D(2020, 1, 31), D(2020, 2, 1)])}),
    Case(
        "days beyond 12 first",
        "t\n13/02/2020\n01/03/2020\n",
        {"t": (DATE, [D(2020, 2, 13), D(2020, 3, 1)])},
        ("column 't': dates such as 13/02/2020 are read day first, as 13/02/2020 shows",),
    ),
    Case(
        "days beyond 12 second",
        "t\n02/01/2020\n02/13/2020\n",
        {"t": (DATE, [D(2020, 2, 1), D(2020, 2, 13)])},
        ("are read month first, as 02/13/2020 shows",),
    ),
    Case(
        "days up to 12 that stand in order",
        "t\n01/11/2020\n01/12/2020\n02/01/2020\n",
        {"t": (DATE, [D(2020, 1, 11), D(2020, 1, 12), D(2020, 2, 1)])},
        ("are read month first, because the rows then stand in the order of time; if that is wrong, say --dates day-first",),
    ),
    Case(
        "the first of each month",
        "t\n01/11/2020\n01/12/2020\n01/01/2021\n",
        {"t": (DATE, [D(2020, 11, 1), D(2020, 12, 1), D(2021, 1, 1)])},
        ("day first, because the steps between the rows are then more even",),
    ),
    Case(
        "nothing that tells",
        "t\n01/02/2020\n01/02/2020\n",
        {"t": (DATE, [D(2020, 2, 1)] * 2)},
        ("are read day first, as nothing in the column tells; if that is wrong, say --dates month-first",),
    ),
    Case(
        "as asked for",
        "t\n01/02/2020\n03/02/2020\n",
        {"t": (DATE, [D(2020, 1, 2), D(2020, 3, 2)])},
        (),
        {"dates": "month-first"},
    ),
    Case(
        "points",
        "t\n01.02.2020\n02.02.2020\n",
        {"t": (DATE, [D(2020, 2, 1), D(2020, 2, 2)])},
        ("day first, as dates with points are",),
    ),
    Case(
        "years of two digits",
        "t\n31-12-99\n01-01-00\n",
        {"t": (DATE, [D(1999, 12, 31), D(2000, 1, 1)])},
        ("years of two digits are read as 1969 … 2068", "day first, as 31-12-99 shows"),
    ),
    Case("months", "t\n2020-01\n2020-12\n", {"t": (DATE, [D(2020, 1, 1), D(2020, 12, 1)])}),
    Case("names of months", "t\nJan 2020\nDecember 2020\n", {"t": (DATE, [D(2020, 1, 1), D(2020, 12, 1)])}),
    Case(
        "days with names of months",
        "t\n1 Jan 2020\n31-Dec-20\n",
        {"t": (DATE, [D(2020, 1, 1), D(2020, 12, 31)])},
        ("two digits",),
    ),
    Case("as Americans write", 't\n"Jan 5, 2020"\n"Feb 7, 2020"\n', {"t": (DATE, [D(2020, 1, 5), D(2020, 2, 7)])}),
    Case("quarters", "t\n2020Q1\n2020-Q4\n", {"t": (DATE, [D(2020, 1, 1), D(2020, 10, 1)])}),
    Case("digits only, under such a name", "date\n20200131\n20200201\n", {"date": (DATE, [D(2020, 1, 31), D(2020, 2, 1)])}),
    Case("digits only, under another name", "part\n20200131\n20200201\n", {"part": (INT, [20200131, 20200201])}),
    Case(
        "a day that does not exist, and a word",
        "t\n2020-02-28\n2020-02-30\n2020-03-01\n2020-03-02\n2020-03-03\nn.a.\n",
        {"t": (DATE, [D(2020, 2, 28), None, *(D(2020, 3, d) for d in (1, 2, 3)), None])},
        ("'2020-02-30' is no date: missing", "'n.a.' is taken as missing (1 cell)"),
    ),
    # times
    Case(
        "times",
        "t\n2020-01-01 10:30\n2020-01-01T11:00:05.25\n",
        {"t": (MOMENT, [M(2020, 1, 1, 10, 30), M(2020, 1, 1, 11, 0, 5, 250000)])},
    ),
    Case(
        "before and after noon",
        "t\n1/13/2020 12:30 AM\n1/13/2020 3:30 pm\n",
        {"t": (MOMENT, [M(2020, 1, 13, 0, 30), M(2020, 1, 13, 15, 30)])},
        ("month first",),
    ),
    Case(
        "times of day",
        "t\n10:00\n22:30\n",
        {"t": (MOMENT, [M(1970, 1, 1, 10), M(1970, 1, 1, 22, 30)])},
        ("times of day without a date are taken as those of one day",),
    ),
    Case("weeks", "t\n2020-W01\n2020-W02\n", {"t": (DATE, [D(2019, 12, 30), D(2020, 1, 6)])}),
    Case("months as numbers", "month\n202011\n202102\n", {"month": (DATE, [D(2020, 11, 1), D(2021, 2, 1)])}),
    Case("durations are text", "took\n26:15\n27:30\n", {"took": (TEXT, ["26:15", "27:30"])}),
    Case(
        "times of day of several days",
        "t\n22:30\n23:30\n0:30\n1:30\n",
        {"t": (MOMENT, [M(1970, 1, 1, h, 30) for h in (22, 23, 0, 1)])},
        ("though the rows go back once: add the date if they are of several days",),
    ),
    Case(
        "a date and a time of day",
        "Date;Time;y\n16/12/2006;17:24:00;2.5\n16/12/2006;17:25:00;4.5\n",
        {"Date": (MOMENT, [M(2006, 12, 16, 17, 24), M(2006, 12, 16, 17, 25)]), "y": (FLOAT, [2.5, 4.5])},
        ("columns 'Date' and 'Time' are read as one, 'Date'", "day first"),
    ),
    Case(
        "Z",
        "t\n2020-01-01T10:30:00Z\n2020-01-01T11:00:00Z\n",
        {"t": (IN_UTC, [M(2020, 1, 1, 10, 30, tzinfo=UTC), M(2020, 1, 1, 11, tzinfo=UTC)])},
    ),
    Case(
        "an offset",
        "t\n2020-01-01T10:30+01:00\n2020-01-01 11:00 +0100\n",
        {"t": (IN_UTC, [M(2020, 1, 1, 9, 30, tzinfo=UTC), M(2020, 1, 1, 10, tzinfo=UTC)])},
    ),
    Case(
        "a zone by its name",
        "t\n2020-07-01 10:30 CEST\n2020-07-01 19:00 AEST\n",
        {"t": (IN_UTC, [M(2020, 7, 1, 8, 30, tzinfo=UTC), M(2020, 7, 1, 9, tzinfo=UTC)])},
        ("the zone is taken from its name, CEST for +02:00, AEST for +10:00", "several offsets"),
    ),
    Case(
        "a word that is no zone",
        "t\n2020-07-01 10:30 LAT\n2020-07-01 11:00 LAT\n",
        {"t": (TEXT, [f"2020-07-01 {h} LAT" for h in ("10:30", "11:00")])},
    ),
    Case("numbers of parts that could be months", "part\n12-3456\n11-7890\n", {"part": (TEXT, ["12-3456", "11-7890"])}),
    Case(
        "several offsets",
        "t\n2020-03-29T01:30+01:00\n2020-03-29T03:00+02:00\n",
        {"t": (IN_UTC, [M(2020, 3, 29, 0, 30, tzinfo=UTC), M(2020, 3, 29, 1, tzinfo=UTC)])},
        ("times with several offsets (+01:00, +02:00) are shown in UTC; --zone, as in --zone Europe/Berlin, names another",),
    ),
    Case(
        "clocks that are set forward and back",
        "t\n2020-03-29 02:30\n2020-10-25 02:30\n",
        {"t": (IN_UTC, [None, M(2020, 10, 25, 0, 30, tzinfo=UTC)])},
        (
            "without a zone",
            "1 time falls into an hour that the clocks of Europe/Berlin skipped: missing",
            "twice: taken for the first",
        ),
        {"zone": "Europe/Berlin"},
    ),
    Case(
        "a zone that is asked for",
        "t\n2020-03-29 01:30\n2020-03-29 03:00\n",
        {"t": (IN_UTC, [M(2020, 3, 29, 0, 30, tzinfo=UTC), M(2020, 3, 29, 1, tzinfo=UTC)])},
        ("times without a zone are taken for those of Europe/Berlin",),
        {"zone": "Europe/Berlin"},
    ),
    # moments that are counted, and rarer ways to write them
    Case(
        "seconds since 1970",
        "timestamp,y\n1577836800,2.5\n1577840400,4.5\n",
        {"timestamp": (IN_UTC, [M(2020, 1, 1, tzinfo=UTC), M(2020, 1, 1, 1, tzinfo=UTC)]), "y": (FLOAT, [2.5, 4.5])},
        ("numbers such as 1577836800 are read as seconds since 1970",),
    ),
    Case(
        "milliseconds since 1970",
        "event_time\n1577836800000\n1577836800250\n",
        {"event_time": (IN_UTC, [M(2020, 1, 1, tzinfo=UTC), M(2020, 1, 1, 0, 0, 0, 250000, tzinfo=UTC)])},
        ("milliseconds since 1970",),
    ),
    Case(
        "days of a spreadsheet",
        "date,y\n43831,2.5\n43832,4.5\n",
        {"date": (DATE, [D(2020, 1, 1), D(2020, 1, 2)]), "y": (FLOAT, [2.5, 4.5])},
        ("numbers such as 43831 are read as days as spreadsheets number them",),
    ),
    Case("numbers whose name only ends so", "update\n43831\n43832\n", {"update": (INT, [43831, 43832])}),
    Case("seconds of an experiment", "time\n0\n43831\n", {"time": (INT, [0, 43831])}),
    Case(
        "a day and an hour",
        "date,hour,y\n2020-01-01,23,2.5\n2020-01-01,24,4.5\n",
        {"date": (MOMENT, [M(2020, 1, 1, 23), M(2020, 1, 2)]), "y": (FLOAT, [2.5, 4.5])},
        ("columns 'date' and 'hour' are read as one, 'date'",),
    ),
    Case(
        "an hour beside other columns",
        "date,hour,x,y\n2020-01-01,0,1,2.5\n2020-01-01,1,3,4.5\n",
        {"date": (DATE, [D(2020, 1, 1)] * 2), "hour": (INT, [0, 1]), **PLAIN},
    ),
    Case(
        "ISO 8601 without marks",
        "t\n20200101T103000Z\n20200101T113000Z\n",
        {"t": (IN_UTC, [M(2020, 1, 1, 10, 30, tzinfo=UTC), M(2020, 1, 1, 11, 30, tzinfo=UTC)])},
    ),
    Case("hours only", "t\n2020-01-01 10\n2020-01-01 11\n", {"t": (MOMENT, [M(2020, 1, 1, 10), M(2020, 1, 1, 11)])}),
    Case(
        "points in times of day",
        "t\n13.02.2020 10.30\n13.02.2020 11.00\n",
        {"t": (MOMENT, [M(2020, 2, 13, 10, 30), M(2020, 2, 13, 11)])},
        ("day first",),
    ),
    Case(
        "months in French",
        "t\n1er juin 2020\n2 juillet 2020\n3 août 2020\n",
        {"t": (DATE, [D(2020, 6, 1), D(2020, 7, 2), D(2020, 8, 3)])},
    ),
    Case(
        "months in Spanish",
        "t\n1 de enero de 2020\n2 de septiembre de 2020\n",
        {"t": (DATE, [D(2020, 1, 1), D(2020, 9, 2)])},
    ),
    Case(
        "dates that are not written alike",
        "t\n2020-01-05\n06/01/2020\n2020-01-07\n",
        {"t": (TEXT, ["2020-01-05", "06/01/2020", "2020-01-07"])},
        ("column 't': dates that are not written alike, such as '2020-01-05', '06/01/2020', '2020-01-07': read as text",),
    ),
    Case(
        "thousands as in India",
        'v\n"1,23,456.50"\n"12,34,567.00"\n',
        {"v": (FLOAT, [123456.5, 1234567.0])},
        ("commas stand between thousands",),
    ),
    Case("a negative per cent in brackets", "v\n(5.5%)\n3.5%\n", {"v": (FLOAT, [-5.5, 3.5])}, ("brackets", "per cent")),
    Case("infinity", "v\ninf\n1.5\n2.5\n", {"v": (FLOAT, [None, 1.5, 2.5])}, ("infinity is taken as missing (1 cell)",)),
    Case("digits of another script", "v\n１\n３\n", {"v": (TEXT, ["１", "３"])}),
]
