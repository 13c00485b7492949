# SPDX-License-Identifier: MIT
# tests/apps/browser.py - a headless Chromium to open pages in, press keys, and take pictures. Talks the DevTools
# protocol over its pipe (--remote-debugging-pipe: JSON messages that end in a zero byte, on file descriptors 3 and 4),
# for which the standard library is enough. Used by report_test.py.
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


def find():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser with one page. What the page's console says, and what it throws, is in `complaints`."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="brigade-browser-")
        to_browser, self.out = os.pipe()
        self.inp, from_browser = os.pipe()
        # No sandbox: containers run as root. No GPU, no network, no shared memory of 64 MB.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-pipe",
                 f"--user-data-dir={self.profile}", "about:blank"]

        def at_3_and_4():
            # Via high numbers, as 3 and 4 may be among the pipes themselves.
            os.dup2(to_browser, 103)
            os.dup2(from_browser, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self.process = subprocess.Popen([program, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=at_3_and_4, pass_fds=(3, 4))
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints, self.requests, self.events = [], [], []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        # Its helper processes may write to it for a moment yet.
        shutil.rmtree(self.profile, ignore_errors=True)
        os.close(self.out)
        os.close(self.inp)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.inp], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            piece = os.read(self.inp, 1 << 16)
            if not piece:
                raise AssertionError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method:
            self.events.append(method)
        return message

    def send(self, method, seconds=60, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def run(self, script):
        """The value of an expression in the page; waits for promises."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screen(self, width, height, dark=False, scale=1, phone=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=phone)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                            # Else a page is still scrolling when the next event is aimed at a place on it.
                            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, file):
        """Opens a page and returns the seconds until it had drawn itself."""
        begin = time.monotonic()
        self.send("Page.navigate", url=file.resolve().as_uri())
        while not self.run("document.documentElement?.dataset.ready === 'true'"):
            if time.monotonic() - begin > 30:
                raise AssertionError(f"{file} is not ready after 30 s: {self.complaints}")
            time.sleep(0.02)
        # The picture after the next one holds what was drawn.
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - begin

    def key(self, key, times=1):
        text = {"text": key} if len(key) == 1 else {}
        for _ in range(times):
            self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def move(self, x, y):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file, whole=True):
        """A PNG of the whole page, or of what is in view."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))
