"""What the projector counts, for Prometheus; the names are a contract with dashboards."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_FOLD_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # seconds


class Metrics:
    """One process' counters, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        p = "flightlog_projector"
        self.lag = Gauge(
            f"{p}_lag", "Messages that no row covers yet.", ["stream"], registry=registry
        )
        self.floor = Gauge(
            f"{p}_floor",
            "Stream sequence below which all is covered.",
            ["stream"],
            registry=registry,
        )
        self.notices = Counter(
            f"{p}_notices", "Notices taken, redeliveries too.", registry=registry
        )
        self.events = Counter(f"{p}_events", "Events folded.", registry=registry)
        self.rows = Counter(f"{p}_rows", "Catalog rows written.", registry=registry)
        self.snapshots = Counter(
            f"{p}_snapshots", "Snapshots written.", ["projection"], registry=registry
        )
        self.snapshots_skipped = Counter(
            f"{p}_snapshots_skipped",
            "Snapshots too large to store.",
            ["projection"],
            registry=registry,
        )
        self.conflicts = Counter(
            f"{p}_conflicts",
            "Writes that another replica was faster with.",
            ["what"],
            registry=registry,
        )
        self.purges = Counter(
            f"{p}_purges", "Sessions forgotten after a tombstone.", registry=registry
        )
        self.set_aside = Gauge(
            f"{p}_set_aside_sessions",
            "Sessions that cannot be projected.",
            ["stream"],
            registry=registry,
        )
        self.projection_failures = Counter(
            f"{p}_projection_failures",
            "Errors of users' projections.",
            ["projection"],
            registry=registry,
        )
        self.hindrances = Counter(
            f"{p}_hindrances",
            "Times that NATS or Redis did not serve.",
            ["what"],
            registry=registry,
        )
        self.renewals = Counter(
            f"{p}_renewals", "Subscriptions made anew after silence.", ["stream"], registry=registry
        )
        self.rebuilding = Gauge(
            f"{p}_rebuilding",
            "1 while the stream's part of the catalog is made whole.",
            ["stream"],
            registry=registry,
        )
        self.rebuilt = Counter(
            f"{p}_rebuilt_sessions",
            "Sessions projected by rebuilds.",
            ["stream"],
            registry=registry,
        )
        self.fold_seconds = Histogram(
            f"{p}_fold_seconds",
            "Time to fold and write one session.",
            buckets=_FOLD_BUCKETS,
            registry=registry,
        )

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)
