"""Making the streams of a broker, and saying what stands in the way."""

from flightlog_recorder.provision.plan import Plan, Refusal, Wish, plan
from flightlog_recorder.provision.provision import Made, provision

__all__ = ["Made", "Plan", "Refusal", "Wish", "plan", "provision"]
