"""Defects, of ours or of users' code, named without their texts, which may quote a payload."""


def place(exc: Exception) -> str:
    """The error's class, and the module and line that raised it."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}" if trace else ""
    return f"{type(exc).__name__}{where}"
