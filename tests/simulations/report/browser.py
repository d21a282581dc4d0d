"""A real browser, told what to do by the WebDriver protocol over HTTP; for tests of pages.

Needs Chromium and its driver; where one of them is missing, tests are skipped, and say so.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "a browser is needed: install chromium and chromium-driver"
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,1000",
)  # fmt: skip


class Browser:
    """One window of the browser."""

    def __init__(self, address: str, profile: Path) -> None:
        self._http = httpx.Client(base_url=address, timeout=60.0, trust_env=False)
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        body = {"capabilities": {"alwaysMatch": wanted}}
        made = self._checked(self._http.post("/session", json=body))
        self._session = f"/session/{made['sessionId']}"

    def open(self, address: str) -> None:
        """Load a page, and forget what was noted of the one before."""
        self.log("browser")
        self.log("performance")
        self._post("/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self._post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for_a_frame(self) -> None:
        """Until the browser has drawn twice, and told the page of all that happened before."""
        script = (
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )
        self._post("/execute/async", {"script": script, "args": []})

    def barriers(self) -> list[str]:
        """What axe-core finds on the page that keeps people out, by rule and place."""
        package = find_spec("axe_core_python")
        assert package is not None, "axe-core-python is among the extras of developers"
        folder = Path(*package.submodule_search_locations or ())
        self.run((folder / "axe.min.js").read_text(encoding="utf-8"))
        script = "const done = arguments[0]; axe.run(document).then((r) => done(r.violations))"
        found = self._post("/execute/async", {"script": script, "args": []})
        return [
            f"{each['id']}: {node['target']}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def see(self, *, scheme: str, width: int) -> None:
        """Light or dark, wide or narrow: as the reader's own machine would have it."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.command("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the browser's own protocol."""
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What was noted since the last look: "browser" is the console, "performance" requests."""
        found: list[dict[str, Any]] = self._post("/se/log", {"type": kind})
        return found

    def requested(self) -> list[str]:
        """The addresses that pages asked for since the last look.

        The browser's own start page may still be loading by then, and does not count.
        """
        events = (json.loads(entry["message"])["message"] for entry in self.log("performance"))
        sent = (e["params"] for e in events if e["method"] == "Network.requestWillBeSent")
        return [
            str(request["request"]["url"])
            for request in sent
            if not str(request["documentURL"]).startswith(("chrome:", "chrome-untrusted:"))
        ]

    def close(self) -> None:
        self._checked(self._http.delete(self._session))
        self._http.close()

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._checked(self._http.post(self._session + path, json=body))

    @staticmethod
    def _checked(reply: httpx.Response) -> Any:
        value = reply.json()["value"]
        if reply.is_error:
            raise RuntimeError(value["message"])
        return value


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser of its own, which is gone with its driver at the end."""
    with subprocess.Popen(
        [str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        try:
            lines = driver.stdout or ()
            ports = (re.search(r"successfully on port (\d+)", line) for line in lines)
            port = next(int(found.group(1)) for found in ports if found)
            window = Browser(f"http://127.0.0.1:{port}", profile)
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()
