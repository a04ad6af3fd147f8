"""What can go wrong with the demo itself."""

from flightlog.errors import FlightlogError


class DemoFailed(FlightlogError):
    """The demo could not be told to its end; nothing outside its own data was touched."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the demo stopped: {why}")
