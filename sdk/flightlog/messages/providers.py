"""The providers whose messages are read and written, by name."""

from flightlog.messages import anthropic, openai_chat
from flightlog.messages.provider import Provider

DEFAULT = anthropic.NAME

_ALL: tuple[Provider, ...] = (anthropic, openai_chat)
_BY_NAME = {each.NAME: each for each in _ALL}
_BY_VIEW = {each.VIEW: each for each in _ALL}


def get(name: str) -> Provider:
    """The provider's format; one without a module of its own is read and written as Anthropic's."""
    return _BY_NAME.get(name, anthropic)


def of_view(view: str) -> Provider | None:
    """The provider whose messages follow the rules of that name."""
    return _BY_VIEW.get(view)
