"""What can go wrong with servers of our own; each says what to do."""

from pathlib import Path

from flightlog.errors import FlightlogError


class AlreadyRunning(FlightlogError):
    """Another process runs servers on this data. Nothing was changed."""

    def __init__(self, data: Path, pid: int | None) -> None:
        self.data = data
        self.pid = pid
        who = f"process {pid}" if pid else "another process"
        super().__init__(f"already running on {data} ({who}); stop it first, or give other data")


class DataRefused(FlightlogError):
    """The data directory cannot be ours. Nothing was changed."""

    def __init__(self, data: Path, why: str) -> None:
        self.data = data
        super().__init__(f"{data} cannot hold the servers' data: {why}; give a new directory")


class ServerMissing(FlightlogError):
    """No usable server program on this machine."""

    def __init__(self, name: str, why: str, *, variable: str) -> None:
        self.name = name
        super().__init__(
            f"{name}: {why}; pip install 'flightlog[embedded]', or set {variable} to a running one"
        )


class ServerFailed(FlightlogError):
    """A server did not start; its own last words are in its log file."""

    def __init__(self, name: str, log: Path, last_words: str) -> None:
        self.name = name
        self.log = log
        super().__init__(f"{name} did not start: {last_words or 'it said nothing'} (see {log})")
