"""The second reading of a source: each record is mapped, kept or counted, and none is lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

from flightlog_recorder.importer.drafts import Drafts
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import (
    FileId,
    Line,
    Reading,
    Record,
    parse,
    read_lines,
)


class Unfit(Exception):
    """A record that can only be kept, and why."""


class ViewOnly(Exception):
    """A record that only viewers need: it is counted under its name and becomes no event."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


def records(path: Path, file: FileId) -> Iterator[Record]:
    """Every object of the file, one line in memory at a time."""
    index = 0
    for line in read_lines(path, upto=file.size):
        for fields in parse(line).objects:
            yield Record(index, line.number, line.offset, fields)
            index += 1


def walk(
    path: Path, file: FileId, drafts: Drafts, report: Report, take: Callable[[Record], None]
) -> None:
    """Give every record to `take` in file order, which raises `Unfit` or `ViewOnly` or maps it.

    Lines that cannot be read are kept raw and flagged.
    """
    index = 0
    for line in read_lines(path, upto=file.size):
        reading = parse(line)
        _account_line(line, reading, drafts, report)
        for fields in reading.objects:
            _account(Record(index, line.number, line.offset, fields), drafts, report, take)
            index += 1


def _account_line(line: Line, reading: Reading, drafts: Drafts, report: Report) -> None:
    report.lines += 1
    if reading.bad:
        drafts.keep_raw(line, reading.bad)
        report.records += 1
        report.kept += 1
    elif not reading.objects:
        report.blank += 1
    for note in reading.notes:
        report.flag(line.number, note)
    report.extra_records += max(0, len(reading.objects) - 1)


def _account(
    record: Record, drafts: Drafts, report: Report, take: Callable[[Record], None]
) -> None:
    report.records += 1
    try:
        take(record)
    except ViewOnly as exc:
        report.count("view_only", exc.name)
    except Unfit as exc:
        drafts.keep(record, why=str(exc))
        report.kept += 1
    else:
        report.recorded += 1
