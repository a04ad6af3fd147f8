"""Foreign transcripts on their way into sessions: read, mapped to drafts of events, counted."""

from flightlog_recorder.importer.claude_code import read_claude_code
from flightlog_recorder.importer.codex import read_codex
from flightlog_recorder.importer.draft import Draft, Imported, Keys, keys
from flightlog_recorder.importer.errors import BadTranscript
from flightlog_recorder.importer.report import Flag, Report, Usage
from flightlog_recorder.importer.source import grew_from

__all__ = [
    "BadTranscript",
    "Draft",
    "Flag",
    "Imported",
    "Keys",
    "Report",
    "Usage",
    "grew_from",
    "keys",
    "read_claude_code",
    "read_codex",
]
