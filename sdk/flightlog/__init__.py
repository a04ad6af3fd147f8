"""Flightlog: the flight recorder for fleets of AI agents. The log is the only truth."""

from flightlog.bus.access import NatsAccess
from flightlog.cache.store import StoreUnavailable
from flightlog.connecting import connect
from flightlog.errors import (
    BlobCorrupt,
    BlobMissing,
    BusUnavailable,
    CallRefused,
    CredentialsUnusable,
    Fenced,
    FlightlogError,
    InvalidEvent,
    InvalidName,
    InvalidValue,
    KeyTaken,
    LayoutRefused,
    LogCorrupt,
    LogFull,
    NeedsDecision,
    NoSuchSession,
    NotPermitted,
    SessionEnded,
    SessionLive,
    SessionPurged,
    Suspended,
    TooLarge,
    VersionRefused,
)
from flightlog.event import Control, Event
from flightlog.log import Log
from flightlog.running.calling import Result
from flightlog.serving import serve
from flightlog.session import EffectFailed, Session
from flightlog.snapshot import Projection, Snapshot
from flightlog.state import SessionState
from flightlog.step import AwaitUser, Call, CallModel, Decide, Ended, RunTools, Step
from flightlog.subscribing.delivery import Delivery
from flightlog.subscribing.subscriber import subscriber
from flightlog.subscribing.subscription import Subscription
from flightlog.tool import tool
from flightlog.wire.chunk import Blob

__all__ = [
    "AwaitUser",
    "Blob",
    "BlobCorrupt",
    "BlobMissing",
    "BusUnavailable",
    "Call",
    "CallModel",
    "CallRefused",
    "Control",
    "CredentialsUnusable",
    "Decide",
    "Delivery",
    "EffectFailed",
    "Ended",
    "Event",
    "Fenced",
    "FlightlogError",
    "InvalidEvent",
    "InvalidName",
    "InvalidValue",
    "KeyTaken",
    "LayoutRefused",
    "Log",
    "LogCorrupt",
    "LogFull",
    "NatsAccess",
    "NeedsDecision",
    "NoSuchSession",
    "NotPermitted",
    "Projection",
    "Result",
    "RunTools",
    "Session",
    "SessionEnded",
    "SessionLive",
    "SessionPurged",
    "SessionState",
    "Snapshot",
    "Step",
    "StoreUnavailable",
    "Subscription",
    "Suspended",
    "TooLarge",
    "VersionRefused",
    "connect",
    "serve",
    "subscriber",
    "tool",
]
