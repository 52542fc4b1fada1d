"""Runs the clients of the vendors against a scripted model: `clients.py ADDRESS`. Prints their results as JSON."""

import json
import sys

import anthropic
import openai

address = sys.argv[1]
tool = {"name": "terminal", "description": "runs", "parameters": {"type": "object", "properties": {}}}
seen = {}
image = "R0lGODlh"
address_of_image = f"data:image/gif;base64,{image}"

client = openai.OpenAI(base_url=f"{address}/v1", api_key="sk-test", max_retries=0)
asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": tool}]}


def chat(message):
    calls = [[call.id, call.function.name, json.loads(call.function.arguments)] for call in message.tool_calls or []]
    return [message.content, calls]


with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
    for event in stream:
        pass
    final = stream.get_final_completion()
    seen["chat stream"] = chat(final.choices[0].message) + [final.choices[0].finish_reason, final.usage.total_tokens]
asked["messages"] = [{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": address_of_image}}]}]
whole = client.chat.completions.create(**asked)
seen["chat"] = chat(whole.choices[0].message) + [whole.choices[0].finish_reason, whole.usage.total_tokens]


def response(final):
    calls = [[item.call_id, item.name, json.loads(item.arguments)] for item in final.output if item.type == "function_call"]
    return [final.output_text, calls, final.status, final.usage.total_tokens]


asked = {"model": "m", "input": "hi", "tools": [{"type": "function", "strict": False, **tool}]}
with client.responses.stream(**asked) as stream:
    for event in stream:
        pass
    seen["responses stream"] = response(stream.get_final_response())
asked["input"] = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": address_of_image, "detail": "auto"}]}]
seen["responses"] = response(client.responses.create(**asked))


def message(final):
    text = "".join(block.text for block in final.content if block.type == "text")
    calls = [[block.id, block.name, block.input] for block in final.content if block.type == "tool_use"]
    signatures = [block.signature for block in final.content if block.type == "thinking"]
    return [text, calls, final.stop_reason, final.usage.output_tokens, signatures]


claude = anthropic.Anthropic(base_url=address, api_key="sk-test", max_retries=0)
tools = [{"name": "terminal", "description": "runs", "input_schema": tool["parameters"]}]
asked = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "tools": tools}
with claude.messages.stream(**asked) as stream:
    for event in stream:
        pass
    seen["messages stream"] = message(stream.get_final_message())
source = {"type": "base64", "media_type": "image/gif", "data": image}
asked["messages"] = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "hi"}]}]
seen["messages"] = message(claude.messages.create(**asked))

# What the fake refuses, their error types must know.
for name, call in {
    "chat": lambda: client.chat.completions.create(model="m", messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}]),
    "responses": lambda: client.responses.create(model="m", input=[{"type": "function_call_output", "call_id": "x", "output": "y"}]),
    "messages": lambda: claude.messages.create(model="m", max_tokens=1, messages=[{"role": "assistant", "content": "x"}]),
}.items():
    try:
        call()
    except (openai.BadRequestError, anthropic.BadRequestError) as error:
        seen[f"{name} refused"] = error.status_code

print(json.dumps(seen))
