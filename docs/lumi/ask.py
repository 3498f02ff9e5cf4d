"""Ask a server of language models that listens on a socket file: ask.py SOCKET MODEL QUESTION.

Waits until the server is ready, for half an hour at most.
"""

import http.client
import json
import socket
import sys
import time


class Connection(http.client.HTTPConnection):
    """A connection to a socket file."""

    def __init__(self, path):
        """Keep the path of the file."""
        super().__init__("localhost")
        self.path = path

    def connect(self):
        """Connect to the file instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def request(path, method, url, content=None):
    """Return the server's answer: status and text."""
    connection = Connection(path)
    connection.request(method, url, content and json.dumps(content), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def wait(path, seconds=1800):
    """Wait until the server has loaded its model."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if request(path, "GET", "/health")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit(f"no server is ready on {path}")


def main():
    """Ask one question."""
    path, model, question = sys.argv[1:]
    wait(path)
    messages = [{"role": "user", "content": question}]
    status, text = request(path, "POST", "/v1/chat/completions", {"model": model, "messages": messages})
    if status != 200:
        sys.exit(f"the server answers {status}: {text}")
    print(json.loads(text)["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
