"""What the recorder counts, for Prometheus; the names are a contract with dashboards."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    """One process' counters, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        p = "flightlog_recorder"
        self.sessions = Counter(f"{p}_sessions", "Sessions looked after.", registry=registry)
        self.events = Counter(f"{p}_events", "Events verified.", registry=registry)
        self.rounds = Counter(f"{p}_rounds", "Rounds over all sessions.", registry=registry)
        self.round_seconds = Gauge(
            f"{p}_round_seconds", "How long the last round took.", registry=registry
        )
        self.problems = Gauge(
            f"{p}_problem_sessions",
            "Sessions in which the last look found something wrong.",
            ["kind"],
            registry=registry,
        )
        self.purges = Counter(
            f"{p}_finished_purges", "Purges finished that a crash had left.", registry=registry
        )
        self.bases = Counter(
            f"{p}_abandoned_bases", "Bases given up that nobody sealed.", registry=registry
        )
        self.chunks = Counter(
            f"{p}_collected_chunks", "Chunks of blobs deleted that nothing uses.", registry=registry
        )
        self.inbox = Counter(
            f"{p}_cleared_inbox_items", "Inbox items deleted once taken.", registry=registry
        )
        self.stalled = Gauge(
            f"{p}_stalled_sessions",
            "Sessions that run and of which nothing is heard.",
            ["tenant"],
            registry=registry,
        )
        whose = ["tenant", "subscriber"]
        self.lag = Gauge(
            "flightlog_subscriber_lag",
            "Messages that a subscriber has not settled.",
            whose,
            registry=registry,
        )
        self.in_hand = Gauge(
            "flightlog_subscriber_in_hand",
            "Those of its lag that it was given, or that wait for their next try.",
            whose,
            registry=registry,
        )
        self.letters = Gauge(
            "flightlog_subscriber_dead_letters",
            "Deliveries that it gave up.",
            whose,
            registry=registry,
        )
        self.hindrances = Counter(
            f"{p}_hindrances",
            "Sessions left to the next round for want of NATS.",
            registry=registry,
        )

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)
