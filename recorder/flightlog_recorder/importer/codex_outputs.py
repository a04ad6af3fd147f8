"""What came of a Codex tool call: the output that the model saw, and what it says of itself."""

import json
import re
from typing import Any

from flightlog_recorder.importer.calls import Finished
from flightlog_recorder.importer.codex_items import Item, block_of, is_kept, source
from flightlog_recorder.importer.source import MAX_DEPTH, plain
from flightlog_recorder.importer.walk import Unfit

HEAD = 400  # characters of an output in which Codex says how the command ended
_EXIT = re.compile(r"^(?:Exit code: |Process exited with code )(-?\d{1,10})\s*$", re.MULTILINE)
_WALL = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds", re.MULTILINE)
_ABORTED = re.compile(r"aborted(?: by user.*)?", re.DOTALL)


def finished(item: Item) -> Finished:
    """The result that an output item brings."""
    call_id = item.body.get("call_id")
    if call_id is not None and plain(call_id) is None:
        raise Unfit("a tool result names its call by an id that is no text")
    name = "output" if "output" in item.body else "tools"
    given = item.body.get(name)
    output = _output(given) if name == "output" else {"tools": given}
    said: dict[str, Any] = {"outcome": _outcome(given, output), "output": output}
    if (seconds := _duration(output)) is not None:
        said["duration"] = seconds
    taken = (name,) if is_kept(given) else ()
    return Finished(call_id=call_id or None, said={**said, "source": source(item, *taken)})


def _output(given: Any) -> Any:
    match given:
        case {"type": str()}:
            return [block_of(given)]
        case {"content": content, **rest} if not rest.keys() - {"success"}:
            return content
        case [*blocks] if all(isinstance(block, dict) for block in blocks):
            return [block_of(block) for block in blocks]
        case _:
            return given


def _outcome(given: Any, output: Any) -> str:
    if isinstance(given, dict) and given.get("success") is False:
        return "error"
    head = _head(output)
    if _ABORTED.fullmatch(head.strip()):
        return "cancelled"
    code = _metadata(output).get("exit_code")
    if type(code) is not int:
        code = int(found[1]) if (found := _exit(head)) else 0
    return "error" if code else "ok"


def _exit(head: str) -> re.Match[str] | None:
    """The exit code that stands before the output itself."""
    return _EXIT.search(head.split("\nOutput:", maxsplit=1)[0])


def _duration(output: Any) -> float | None:
    seconds = _metadata(output).get("duration_seconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0:
        return float(seconds) if seconds < 10**12 else None
    found = _WALL.search(_head(output).split("\nOutput:")[0])
    return float(found[1]) if found else None


def _head(output: Any) -> str:
    """The first words of an output."""
    first = output[0] if isinstance(output, list) and output else output
    text = first.get("text") if isinstance(first, dict) else first
    return text[:HEAD] if isinstance(text, str) else ""


def _metadata(output: Any) -> dict[str, Any]:
    """What older versions wrapped around the output of a shell: JSON in a text."""
    if not isinstance(output, str) or not output.startswith('{"'):
        return {}
    if output.count("{") + output.count("[") > MAX_DEPTH:
        output = '{"metadata":' + output.rpartition('"metadata":')[2]
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return metadata if isinstance(metadata, dict) else {}
