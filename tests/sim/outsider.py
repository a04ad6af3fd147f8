"""Processes that never write a live session: they speak to it, fold it, purge it, import it."""

import asyncio
from typing import cast

from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import BusUnavailable, FlightlogError
from flightlog.log import Log
from flightlog.running import inbox
from flightlog.running.inbox import Item as InboxItem
from flightlog.wire import carry
from flightlog.writing import keys, seal
from flightlog.writing.draft import Draft
from flightlog.writing.keys import Entry
from flightlog_recorder.purge.purge import Reason, purge
from tests.sim.harness import Harness
from tests.sim.records import Item
from tests.sim.world import TENANT

_HELLO = carry.pack("hello")


class Outsider(Harness):
    """Does something to the session a few times, as long as there is one."""

    async def live(self) -> None:
        log = self.world.connect(self.process)
        try:
            for _ in range(self.rng.choice((1, 3))):
                session = self.world.ids.get(self.key)
                if session is None or self.world.over:
                    return
                await self.act(log, session)
                await asyncio.sleep(self.a_while())
        except FlightlogError as exc:
            self.world.trace(f"{self.process.name} ends: {type(exc).__name__} {exc}")
            self.lost(exc)
        finally:
            await log.close()

    async def act(self, log: Log, session: str) -> None:
        """What this kind of process does."""
        raise NotImplementedError


class Speaker(Outsider):
    """Puts items into the inbox, some twice; decides on whatever waits."""

    async def act(self, log: Log, session: str) -> None:
        item = await self._item(log, session)
        sent = Item(session, f"{self.process.name}-{len(self.records.items)}", type(item).__name__)
        self.records.items.append(sent)
        for _ in range(self.rng.choice((1, 1, 2))):
            try:
                sequence = await log.send(session, item, message_id=sent.id)
            except BusUnavailable:
                continue
            again = sent.sequence and sequence != sent.sequence
            if again and self.world.weather.tamper != "purge":
                self.world.violated(f"item {sent.id} of {session} is stored twice")
            sent.sequence = sequence

    async def _item(self, log: Log, session: str) -> InboxItem:
        dice = self.rng.random()
        if dice < 0.03:
            return inbox.Cancel(by="p")
        if dice < 0.1:
            return inbox.Suspend(by="p")
        state = await log.state(session)
        waiting = [call for call in state.calls if call.phase == "undecided"]
        if not waiting:
            return inbox.Say(content=_HELLO)
        call = self.rng.choice(waiting)
        return inbox.decision(
            call.call_id,
            announced_by=call.announced_by,
            ruling=self.rng.choice(("result", "rerun", "fail")),
            output=1,
            by="p",
        )


class Folder(Outsider):
    """Folds the session as projectors and readers do, and stores a snapshot."""

    async def act(self, log: Log, session: str) -> None:
        await self.world.look(log, self.process, session)


class Importer(Harness):
    """Writes a base and seals it; one that a dead importer left is given up first."""

    async def live(self) -> None:
        bus = cast("NatsBus", self.process.bus)
        try:
            entry = await keys.claim(bus, TENANT, self.key, made_by="import")
            if entry.made_by == "import":
                await self._take(bus, entry)
        except FlightlogError as exc:
            self.world.trace(f"{self.process.name} ends: {type(exc).__name__} {exc}")

    async def _take(self, bus: NatsBus, entry: Entry) -> None:
        base = await seal.look(bus, TENANT, entry.id)
        if base.standing == "absent":
            drafts = [Draft("note", carry.pack({"by": "import", "n": n})) for n in range(9)]
            await seal.write_base(bus, TENANT, entry.id, drafts)
            return
        await asyncio.sleep(self.a_while())
        if base.standing != "sealed":
            await seal.abandon(
                bus, TENANT, entry.id, entries=[entry], by="p", why="its author is gone"
            )


class Purger(Outsider):
    """Deletes the session for good; killed anywhere, another one finishes it."""

    async def act(self, log: Log, session: str) -> None:
        bus = cast("NatsBus", self.process.bus)
        await purge(log, bus, session, reason=Reason(by="p", why="asked to"))
