"""News wake those whom they concern, and nobody waits longer than asked."""

import asyncio
import time

from allranks.server.loop.wakeups import Wakeups


def started() -> Wakeups:
    wakeups = Wakeups()
    wakeups.attach(asyncio.get_running_loop())
    return wakeups


def test_news_wake_a_waiter():
    async def wait() -> int:
        wakeups = started()
        waits = asyncio.create_task(wakeups.wait("j", 0, 60.0))
        await asyncio.sleep(0)
        wakeups.notify("j")
        await waits
        return wakeups.count("j")

    assert asyncio.run(wait()) == 1


def test_news_before_the_wait_are_not_lost():
    async def wait() -> None:
        wakeups = started()
        count = wakeups.count("j")
        wakeups.notify("j")
        await asyncio.sleep(0)
        await wakeups.wait("j", count, 60.0)

    asyncio.run(asyncio.wait_for(wait(), 10.0))


def test_many_news_at_once_are_one():
    async def count() -> tuple[int, int]:
        wakeups = started()
        for _ in range(100):
            wakeups.notify("j")
        await asyncio.sleep(0)
        first = wakeups.count("j")
        wakeups.notify("j")
        await asyncio.sleep(0)
        return first, wakeups.count("j")

    assert asyncio.run(count()) == (1, 2)


def test_a_wait_ends_in_time():
    async def wait() -> float:
        wakeups, began = started(), time.monotonic()
        await wakeups.wait("j", 0, 0.02)
        assert not wakeups._waiting
        return time.monotonic() - began

    assert asyncio.run(wait()) >= 0.02


def test_news_that_do_not_concern_a_waiter_leave_it_waiting():
    async def wait() -> list[bool]:
        wakeups, facts = started(), set[str]()
        waits = asyncio.create_task(wakeups.wait("j", 0, 60.0, lambda: "mine" in facts))
        other = asyncio.create_task(wakeups.wait("j", 0, 60.0))
        await asyncio.sleep(0)
        seen = []
        for each in ("another's", "mine"):
            facts.add(each)
            wakeups.notify("j")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            seen.append(waits.done())
        await asyncio.gather(waits, other)
        return seen

    assert asyncio.run(wait()) == [False, True]


def test_new_output_wakes_only_those_who_wait_for_anything():
    async def wait() -> tuple[list[bool], int]:
        wakeups, asked = started(), []
        orders = asyncio.create_task(wakeups.wait("j", 0, 60.0, lambda: asked.append(1) or True))
        stream = asyncio.create_task(wakeups.wait("j", 0, 60.0))
        await asyncio.sleep(0)
        seen = []
        for output in (True, False):
            wakeups.notify("j", output=output)
            for _ in range(3):
                await asyncio.sleep(0)
            seen += [stream.done(), orders.done()]
        await asyncio.gather(stream, orders)
        return seen, len(asked)

    assert asyncio.run(wait()) == ([True, False, True, True], 1)
