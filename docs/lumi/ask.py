"""Ask a server of language models, whose address OPENAI_BASE_URL has: ask.py QUESTION."""

import json
import os
import sys
import urllib.request


def request(path, content=None):
    """Return what the server answers."""
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    data = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + path, data, headers)) as answer:
        return json.load(answer)


def main():
    """Ask one question."""
    model = request("/models")["data"][0]["id"]
    messages = [{"role": "user", "content": sys.argv[1]}]
    answer = request("/chat/completions", {"model": model, "messages": messages})
    print(answer["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
