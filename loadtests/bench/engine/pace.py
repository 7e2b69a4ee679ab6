"""The pace of running streams while a prompt of about 4,000 tokens is prefilled: pace.py URL MODEL [STREAMS]
Prints tokens a second and stream alone, during the prefill, and the ratio of the two."""
import http.client
import json
import sys
import threading
import time
import urllib.parse

url = urllib.parse.urlparse(sys.argv[1])
model = sys.argv[2]
streams = int(sys.argv[3]) if len(sys.argv) > 3 else 4


def chat(content, tokens, times):
    """Appends the time of every token."""
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": tokens,
            "temperature": 0, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
    connection.request("POST", f"{url.path}/chat/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    for raw in answer:
        if raw.startswith(b"data: {") and json.loads(raw[6:])["choices"][0]["delta"].get("content"):
            times.append(time.perf_counter())


def rate(all_times, begin, end):
    return sum(begin <= at < end for times in all_times for at in times) / (end - begin) / len(all_times)


all_times = [[] for _ in range(streams)]
stories = [f"Write a very long story about a lighthouse keeper and the sea. Variation {i}" for i in range(streams)]
running = [threading.Thread(target=chat, args=(story, 2000, times)) for story, times in zip(stories, all_times)]
[thread.start() for thread in running]
while not all(len(times) > 20 for times in all_times):
    time.sleep(0.01)
alone = time.perf_counter()
time.sleep(2)
sent, first = time.perf_counter(), []
chat("water light stone river " * 1000, 1, first)
during = rate(all_times, sent, first[0])
assert all(thread.is_alive() for thread in running), "the streams ended before the prefill did"
before = rate(all_times, alone, sent)
print(f"pace of {streams} streams: {before:.1f} tok/s each alone, {during:.1f} during a prefill of "
      f"{first[0] - sent:.2f} s: {during / before:.2f}")
[thread.join() for thread in running]
