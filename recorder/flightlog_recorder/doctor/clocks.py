"""How far the clocks of the servers are from ours. Pure."""

from collections.abc import Mapping

from flightlog_recorder.doctor.finding import Finding, conclude

CHECK = "clocks"
MUCH, TOO_MUCH = 1.0, 30.0  # seconds: stalled sessions, ids and times mislead from then on
_SYNC = "synchronise it: chronyc makestep (or systemctl restart systemd-timesyncd)"


def check(ahead: Mapping[str, float]) -> list[Finding]:
    """`ahead` is each server's clock less ours, in seconds, measured over one round trip."""
    found = [
        Finding(
            CHECK,
            "wrong" if abs(offset) > TOO_MUCH else "warning",
            f"the clock of {name} is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} "
            "the one here",
            f"find which of the two is off, and {_SYNC}",
        )
        for name, offset in ahead.items()
        if abs(offset) > MUCH
    ]
    most = max(map(abs, ahead.values()), default=0.0)
    return conclude(CHECK, found, f"{len(ahead)} compared with ours, at most {most:.3f} s apart")
