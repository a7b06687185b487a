"""Fixtures: the app behind an address, a browser, and a lock on the network."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support import chromium_path, running_app, running_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# The same examples on every run: a red build can be repeated, and no machine is too slow for a deadline.
settings.register_profile("kvcalc", derandomize=True, deadline=None, max_examples=60, print_blob=True)
settings.load_profile("kvcalc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that drives a browser runs in one worker, so that only one browser and one app run."""
    for item in items:
        if "browser" in item.fixturenames or item.get_closest_marker("browser"):  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test leaves this machine: what the Hub would say is passed in."""
    connect = socket.socket.connect

    def connect_locally(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in _LOOPBACK:  # type: ignore[index]
            pytest.fail(f"The test tried to reach {address!r}; pass the answer in instead.")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect_locally)


_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Address of the running app."""
    with running_app() as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium; without one the test is skipped, except on a build server, where it fails."""
    path = chromium_path()
    if path is None:
        reason = "no chromium on this machine; install it with: sudo apt-get install chromium"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason)
        pytest.skip(reason)
    with running_chromium(path) as chromium:
        yield chromium


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh 1440 x 900 page, light; a script error in it fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []
