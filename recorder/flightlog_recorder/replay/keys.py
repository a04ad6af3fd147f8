"""Bytes that a terminal sends, as the names of keys. Pure."""

import codecs

_CODES = {
    b"[A": "up",
    b"[B": "down",
    b"[C": "right",
    b"[D": "left",
    b"OA": "up",
    b"OB": "down",
    b"OC": "right",
    b"OD": "left",
    b"[H": "home",
    b"[F": "end",
    b"OH": "home",
    b"OF": "end",
    b"[1~": "home",
    b"[4~": "end",
    b"[7~": "home",
    b"[8~": "end",
    b"[5~": "pageup",
    b"[6~": "pagedown",
    b"[Z": "backtab",
}
_PLAIN = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
}
_ESC = 0x1B
MOST = 32  # bytes of a sequence; no key sends a longer one


class Keys:
    """Turns bytes into keys as they come; sequences may be cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_waiting(self) -> bool:
        """Whether an escape has come: the key itself, or the start of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete now; those of unknown sequences are left out."""
        found: list[str] = []
        data = self._rest + data
        self._rest = b""
        while data:
            if data[0] != _ESC:
                plain, escape, rest = data.partition(b"\x1b")
                found += self._plain(plain)
                data = escape + rest
                continue
            length = _length(data)
            if length == 0:
                self._rest = data
                break
            if key := ("esc" if length == 1 else _CODES.get(data[1:length])):
                found.append(key)
            data = data[length:]
        return found

    def flush(self) -> list[str]:
        """Nothing followed: an escape that waits was the key."""
        waiting, self._rest = self._rest, b""
        return ["esc"] if waiting == b"\x1b" else []

    def _plain(self, data: bytes) -> list[str]:
        text = self._text.decode(data)
        return [_PLAIN.get(char, char) for char in text if char in _PLAIN or char.isprintable()]


def _length(data: bytes) -> int:
    """The length of the sequence that begins here; 0 while its end is not there."""
    if len(data) == 1:
        return 0
    if data[1:2] == b"O":
        return 3 if len(data) > 2 else 0
    if data[1:2] != b"[":
        return 1 if data[1] < 0x20 else 2  # two bytes: a key with Alt, which is none of ours
    for at in range(2, min(len(data), MOST)):
        if 0x40 <= data[at] <= 0x7E:
            return at + 1
    return 0 if len(data) < MOST else MOST
