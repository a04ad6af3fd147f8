"""A state as people compare it: by name, without the parts that only make it fast."""

from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

from flightlog.calls import CallState
from flightlog.names import Names
from flightlog.session_state import SessionState
from flightlog.step import AwaitUser, CallModel, Decide, Ended, RunTools, Step
from flightlog_recorder.replay.delta import Change, delta

_APART = frozenset({"entries", "calls", "values", "said", "effects", "recorded", "of_provider"})


def picture(state: SessionState) -> dict[str, Any]:
    """The state by name; its parts are left whole for `opened`, which is asked if they differ."""
    plain = {name: getattr(state, name) for name in state.__struct_fields__ if name not in _APART}
    return plain | {
        "next": _next(state.next),
        "provider": state.provider,
        "entries": list(state.entries),
        "calls": {named(call): call for call in state.calls},
        "values": _named(state.values),
        "said": _named(state.said),
        "effects": _named(state.effects),
        "recorded": _named(state.recorded),
    }


def apart(state: SessionState) -> dict[str, Any]:
    """The state by name without its context, which is told in lines of its own."""
    return {name: part for name, part in picture(state).items() if name != "entries"}


def changes(before: SessionState, after: SessionState) -> list[Change]:
    """What happened between two states, as builtins; `entries` is the context."""
    found = delta(picture(before), picture(after), opened=_compared)
    return [replace(each, old=whole(each.old), new=whole(each.new)) for each in found]


def _compared(value: Any) -> Any:
    """A part as `opened`; what lies in a blob is one thing, not the fields that refer to it."""
    match found := opened(value):
        case {"$flightlog": "blob", "value": dict(blob)}:
            return tuple(sorted(blob.items(), key=str))
        case _:
            return found


def opened(value: Any) -> Any:
    """A part of a picture as builtins, one level deep; JSON as it is stored, marks unresolved."""
    match value:
        case Raw():
            return _json(value)
        case Struct():
            return _fields(value)
        case tuple() | frozenset():
            return list(value)
        case UnsetType():
            return None
        case _:
            return value


def whole(value: Any) -> Any:
    """A picture, or a part of one, as builtins all the way down."""
    match found := opened(value):
        case dict():
            return {str(key): whole(item) for key, item in found.items()}
        case list():
            return [whole(item) for item in found]
        case _:
            return found


def _fields(value: Struct) -> dict[str, Any]:
    found = {name: getattr(value, name) for name in value.__struct_fields__}
    tag = value.__struct_config__.tag
    return found if tag is None else {"type": tag, **found}


def _json(raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def _named(names: Names[Any]) -> dict[str, Any]:
    return dict(names.items())


def named(call: CallState) -> str:
    """A call's name among the calls of a picture."""
    return call.call_id if call.announced_by is None else f"{call.call_id} of {call.announced_by}"


def _next(step: Step) -> str:
    match step:
        case RunTools(calls) | Decide(calls):
            return " ".join([type(step).__name__, *(call.call_id for call in calls)])
        case Ended(status):
            return f"Ended {status}"
        case CallModel() | AwaitUser():
            return type(step).__name__
