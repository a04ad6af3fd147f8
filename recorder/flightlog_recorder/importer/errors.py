"""What can be wrong with a transcript as a whole; a bad line is never an error, it is flagged."""

from pathlib import Path

from flightlog.errors import FlightlogError


class BadTranscript(FlightlogError):
    """A file that is not a transcript. Nothing was written; retrying does not help."""

    def __init__(self, path: Path, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path} cannot be imported: {why}; nothing was written")
