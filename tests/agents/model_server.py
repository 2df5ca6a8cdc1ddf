"""A model on the loopback interface that says what a test has written down."""

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTEXT_LENGTH = 128_000


@dataclass(frozen=True)
class Answer:
    """One answer of the model. `prompt_tokens` is what it says it has read."""

    text: str
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str = ""
    prompt_tokens: int = 100
    unfinished: bool = False

    def message(self, call_id: str) -> dict[str, Any]:
        """Return the answer as a message of the chat-completions interface."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool:
            function = {"name": self.tool, "arguments": json.dumps(self.arguments)}
            message["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        return message

    @property
    def finish_reason(self) -> str:
        """Why the answer ends."""
        return "tool_calls" if self.tool else "stop"

    @property
    def usage(self) -> dict[str, int]:
        """What the answer cost."""
        written = len(self.text)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
        }


Script = Mapping[str, list[Answer]]


class ModelServer(ThreadingHTTPServer):
    """Answers a prompt with the next answer that the script has for it.

    The state is in the request: the answers that follow the last user message of the script are
    counted. Requests without tools (summaries, titles) get the answers of the prompt "".
    """

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.requests: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """Return what the script says next."""
        self.requests.append(dict(request))
        said = 0
        for message in reversed(request["messages"]):
            said += int(message["role"] == "assistant")
            if message["role"] == "user" and request.get("tools"):
                for prompt in filter(None, self.script):
                    if prompt in str(message["content"]):
                        return self.script[prompt][said]
        return self.script[""][0]


class Handler(BaseHTTPRequestHandler):
    """Speaks the part of the OpenAI interface that the agent uses."""

    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Name the one model."""
        model = {"id": "scripted", "object": "model", "context_length": CONTEXT_LENGTH}
        self.send_json({"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer a completion, whole or streamed; any other request is unknown."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_json({"error": {"message": "unknown"}}, 404)
            return
        answer = self.server.answer(request)
        message = answer.message(f"call_{len(request['messages'])}")
        common = {"id": "c", "created": 1, "model": "scripted"}
        if request.get("stream"):
            self.send_stream(answer, [{**common, **chunk} for chunk in chunks(answer, message)])
        else:
            choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
            self.send_json({**common, "choices": [choice], "usage": answer.usage})

    def send_json(self, body: Mapping[str, Any], status: int = 200) -> None:
        """Send a whole answer."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_stream(self, answer: Answer, events: list[dict[str, Any]]) -> None:
        """Send server-sent events; an unfinished answer waits until the client goes away."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events[: -2 if answer.unfinished else None]:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        if answer.unfinished:
            self.rfile.read(1)
        else:
            self.wfile.write(b"data: [DONE]\n\n")


def chunks(answer: Answer, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts in which a message is streamed."""
    texts = answer.text.split(" ")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if answer.reasoning:
        deltas.append({"reasoning_content": answer.reasoning})
    deltas += [{"content": text if n == 0 else f" {text}"} for n, text in enumerate(texts)]
    deltas += [{"tool_calls": [{"index": 0, **call}]} for call in message.get("tool_calls", [])]
    for delta in deltas:
        yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "finish_reason": answer.finish_reason}
    yield {"choices": [end]}
    yield {"choices": [], "usage": answer.usage}
