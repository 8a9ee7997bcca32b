"""The page of a job says why it does not start, with a link to what keeps it; and shows no sensitive value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from django_jobs.core.values import Controls, State
from django_jobs.stores.redis import Store
from tests.support.console_data import Filler, worker_info

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_one_click_leads_to_what_keeps_a_job(
    open_page: Callable[..., Page], console_store: Store, shoot: Callable[[Page, str], None], size: str
) -> None:
    console_store.publish_worker("web-1:4711", worker_info(), 600_000)
    id = Filler(console_store).add()
    console_store.pause("default", reason="moving house", by="ada")
    page = open_page(f"job/default/{id}/", size, "dark" if size == "phone" else "light")
    why = page.locator("[data-cause=queue_paused]")
    expect(why).to_contain_text("Queue default is paused (by ada, until it is resumed: moving house).")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shoot(page, f"why-{size}")
    why.get_by_role("link").click()
    expect(page).to_have_url(re.compile("/queues/default/$"))


def test_a_card_is_nowhere(
    open_page: Callable[..., Page], console_store: Store, shoot: Callable[[Page, str], None]
) -> None:
    card = "4111111111111111"
    given: dict[str, Any] = {
        "name": "shop.charge_card", "call": [[7, card], {}],
        "controls": Controls(limit_key=f'shop.charge_card:"{card}"', limit=1),
    }  # fmt: skip
    id = Filler(console_store).make(State.DEAD, f"card {card} was declined", **given)
    page = open_page(f"job/default/{id}/")
    expect(page.locator(".jobs-error").first).to_contain_text("card •••• was declined")
    assert "4111" not in page.content()
    shoot(page, "sensitive")
