"""What the tests and the screenshot script share: a running app, a Chromium, and when a page is ready."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_TIMEOUT_S = 60


def free_port() -> int:
    """A TCP port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_app(**environment: str) -> Iterator[str]:
    """The app under its own process, with these variables beside ours; gives its address, and ends that process."""
    port = free_port()
    options = {
        "server.port": port,
        "server.address": "127.0.0.1",
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
    }
    command = [sys.executable, "-m", "streamlit", "run", "app.py"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (
        subprocess.Popen(
            command, cwd=ROOT, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as server,
    ):
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}/_stcore/health", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_until_healthy(address: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"streamlit: expected a running server, got exit code {server.returncode}.")
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.1)
    raise RuntimeError(f"streamlit: expected an answer within {START_TIMEOUT_S} s, got none.")


def chromium_path() -> str | None:
    """The installed Chromium, None when there is none."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


@contextmanager
def running_chromium(path: str) -> Iterator[Browser]:
    """A headless Chromium under Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def page_ready(page: Page, *, timeout_s: float = 30) -> None:
    """Wait until the script behind the page has finished and the charts are drawn."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=timeout_s * 1e3)
    page.wait_for_function(
        """() => !document.querySelector('[data-testid="stSkeleton"]')
              && [...document.querySelectorAll('[data-testid="stVegaLiteChart"]')]
                   .every(chart => chart.querySelector('canvas, svg'))""",
        timeout=timeout_s * 1e3,
    )
