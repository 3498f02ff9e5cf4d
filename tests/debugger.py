"""A client of the Debug Adapter Protocol, which editors use to talk to debugpy."""

import json
import socket
import time


def connect(port):
    """Return a connection to a port of this machine, as soon as somebody listens."""
    deadline = time.monotonic() + 300
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


class Debugger:
    """A client of the Debug Adapter Protocol."""

    def __init__(self, port, **attach):
        """Connect as soon as somebody listens, attach, set a breakpoint and go on."""
        self.socket = connect(port)
        self.socket.settimeout(60)
        self.file, self.number, self.events = self.socket.makefile("rb"), 0, []
        self.ask("initialize", adapterID="debugpy", pathFormat="path")
        self.send("attach", **attach)
        self.wait("initialized")

    def break_at(self, path, line):
        """Set a breakpoint, and let the program run into it."""
        self.line = line
        answer = self.ask("setBreakpoints", source={"path": str(path)}, breakpoints=[{"line": line}])
        assert answer["breakpoints"][0]["verified"]
        self.ask("configurationDone")
        self.thread = self.wait("stopped")["threadId"]

    def evaluate(self, expression):
        """Return the value of an expression where the program has stopped."""
        frame = self.ask("stackTrace", threadId=self.thread)["stackFrames"][0]
        assert frame["line"] == self.line
        return self.ask("evaluate", expression=expression, frameId=frame["id"])["result"]

    def send(self, command, **arguments):
        """Send a request; return its number."""
        self.number += 1
        text = json.dumps({"seq": self.number, "type": "request", "command": command, "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return self.number

    def read(self):
        """Return the next message."""
        length = 0
        while (line := self.file.readline()) != b"\r\n":
            assert line, "the other end has closed the connection"
            if line.startswith(b"Content-Length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.file.read(length))

    def ask(self, command, **arguments):
        """Send a request; return the body of the answer."""
        number = self.send(command, **arguments)
        while True:
            message = self.read()
            if message["type"] == "event":
                self.events.append(message)
            elif message.get("request_seq") == number:
                assert message["success"], message
                return message.get("body", {})

    def wait(self, event):
        """Return the body of the next event of this kind."""
        while True:
            found = next((one for one in self.events if one["event"] == event), None)
            if found:
                self.events.remove(found)
                return found.get("body", {})
            message = self.read()
            if message["type"] == "event":
                self.events.append(message)
