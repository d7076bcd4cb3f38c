"""Drives the public Event Hubs client against an emulator and checks what comes back.

usage: python_client.py SERVE_BINARY
"""

import concurrent.futures
import os
import subprocess
import sys
import threading
import time
import traceback

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import AuthenticationError, ConnectError, EventHubError

HUB = "interop"
PARTITIONS = 4
KEY_NAME = "sender"
KEY = "interop-secret"
STEP_LIMIT = 60


class Emulator:
    """The emulator process; it ends when its standard input is closed."""

    def __init__(self, binary):
        self.process = subprocess.Popen(
            [binary, HUB, str(PARTITIONS), KEY_NAME, KEY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.process.stdout.readline())

    def connection_string(self, key=KEY):
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName={KEY_NAME};"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true"
        )

    def producer(self, hub=HUB, key=KEY, **options):
        return EventHubProducerClient.from_connection_string(
            self.connection_string(key), eventhub_name=hub, **options
        )

    def consumer(self):
        return EventHubConsumerClient.from_connection_string(
            self.connection_string(), consumer_group="$Default", eventhub_name=HUB
        )

    def stop(self):
        self.process.stdin.close()
        try:
            return self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def receive(emulator, partition, count, position="-1", inclusive=False):
    """Reads until `count` events of one partition are there, or the time is over."""
    events = []
    done = threading.Event()

    def on_event(_context, event):
        events.append(event)
        if len(events) >= count:
            done.set()

    with emulator.consumer() as consumer:
        reader = threading.Thread(
            target=consumer.receive,
            args=(on_event,),
            kwargs={
                "partition_id": partition,
                "starting_position": position,
                "starting_position_inclusive": inclusive,
            },
            daemon=True,
        )
        reader.start()
        done.wait(STEP_LIMIT / 2)
    reader.join(10)
    assert len(events) >= count, f"{len(events)} of {count} events from partition {partition}"
    return events


def last_sequence(producer, partition):
    return producer.get_partition_properties(partition)["last_enqueued_sequence_number"]


def check_properties(emulator):
    with emulator.producer() as producer:
        hub = producer.get_eventhub_properties()
        assert hub["eventhub_name"] == HUB, hub
        assert hub["partition_ids"] == [str(n) for n in range(PARTITIONS)], hub
        partition = producer.get_partition_properties("2")
        assert partition["id"] == "2" and partition["is_empty"], partition
        assert partition["last_enqueued_sequence_number"] == -1, partition


def check_partition(emulator):
    with emulator.producer() as producer:
        batch = producer.create_batch(partition_id="0")
        assert batch.max_size_in_bytes == 1_048_576, batch.max_size_in_bytes
        for n in range(10):
            event = EventData(f"event {n}")
            event.properties = {"n": n, "text": "ü", "flag": True, "ratio": 0.5}
            event.content_type = "text/plain"
            event.message_id = f"id-{n}"
            event.correlation_id = f"correlation-{n}"
            batch.add(event)
        producer.send_batch(batch)
    before = time.time()
    events = receive(emulator, "0", 10)
    for n, event in enumerate(events):
        assert event.body_as_str() == f"event {n}"
        properties = {
            key.decode() if isinstance(key, bytes) else key: (
                value.decode() if isinstance(value, bytes) else value
            )
            for key, value in event.properties.items()
        }
        assert properties == {"n": n, "text": "ü", "flag": True, "ratio": 0.5}, properties
        assert event.content_type == "text/plain" and event.message_id == f"id-{n}"
        assert event.correlation_id == f"correlation-{n}"
        assert event.sequence_number == n, event.sequence_number
        assert abs(event.enqueued_time.timestamp() - before) < 60, event.enqueued_time
    offsets = [int(event.offset) for event in events]
    assert offsets == sorted(set(offsets)), offsets


def check_single(emulator):
    """One event goes out as a plain message, without an envelope."""
    with emulator.producer() as producer:
        producer.send_event(EventData(b"\x00\x01binary"), partition_id="1")
    (event,) = receive(emulator, "1", 1)
    assert b"".join(event.body) == b"\x00\x01binary"


def check_key(emulator):
    """The service's hash decides, so the partition is known beforehand."""
    for key, partition in [("7", "3"), ("131", "2"), ("this-is-a-key-1", "3")]:
        with emulator.producer() as producer:
            first = last_sequence(producer, partition) + 1
            batch = producer.create_batch(partition_key=key)
            for n in range(5):
                batch.add(EventData(f"{key}/{n}"))
            producer.send_batch(batch)
        events = receive(emulator, partition, 5, first, inclusive=True)
        assert [event.body_as_str() for event in events] == [f"{key}/{n}" for n in range(5)]
        keys = {event.partition_key for event in events}
        assert keys in ({key}, {key.encode()}), keys


def check_round_robin(emulator):
    with emulator.producer() as producer:
        ids = producer.get_partition_ids()
        before = [last_sequence(producer, n) for n in ids]
        for n in range(2 * PARTITIONS):
            producer.send_batch([EventData(f"any {n}"), EventData(f"other {n}")])
        after = [last_sequence(producer, n) for n in ids]
    assert [b - a for a, b in zip(before, after)] == [4] * PARTITIONS, (before, after)


def check_large(emulator):
    """A batch filled up to the limit, which takes many frames in both directions."""
    with emulator.producer() as producer:
        first = last_sequence(producer, "2") + 1
        batch = producer.create_batch(partition_id="2")
        sent = []
        while True:
            body = f"{len(sent):08}" + "x" * 300
            try:
                batch.add(EventData(body))
            except ValueError:
                break
            sent.append(body)
        assert len(sent) > 2500, len(sent)
        producer.send_batch(batch)
        batch = producer.create_batch(partition_id="2")
        big = "y" * 1_000_000
        batch.add(EventData(big))
        producer.send_batch(batch)
    events = receive(emulator, "2", len(sent) + 1, first, inclusive=True)
    assert [event.body_as_str() for event in events] == sent + [big]


def check_positions(emulator):
    with emulator.producer() as producer:
        producer.send_batch([EventData(str(n)) for n in range(6)], partition_id="1")
        last = producer.get_partition_properties("1")
    events = receive(emulator, "1", 6, last["last_enqueued_sequence_number"] - 6)
    assert [event.body_as_str() for event in events] == [str(n) for n in range(6)]
    third = events[2]
    inclusive = receive(emulator, "1", 4, str(third.offset), inclusive=True)
    assert inclusive[0].sequence_number == third.sequence_number
    exclusive = receive(emulator, "1", 3, str(third.offset))
    assert exclusive[0].sequence_number == third.sequence_number + 1
    timed = receive(emulator, "1", 6, third.enqueued_time, inclusive=True)
    assert timed[-1].sequence_number == last["last_enqueued_sequence_number"]


def check_live(emulator):
    """A reader that waits at the end sees what comes later, and only that."""
    got = []
    ready, done = threading.Event(), threading.Event()

    def on_event(_context, event):
        if event is None:
            ready.set()
            return
        got.append(event.body_as_str())
        if len(got) == 20:
            done.set()

    with emulator.consumer() as consumer, emulator.producer() as producer:
        reader = threading.Thread(
            target=consumer.receive,
            args=(on_event,),
            kwargs={"partition_id": "3", "starting_position": "@latest", "max_wait_time": 1},
            daemon=True,
        )
        reader.start()
        # A call without an event means that the link has been up for a second.
        assert ready.wait(30), "the reader is not ready"
        for n in range(20):
            producer.send_event(EventData(f"live {n}"), partition_id="3")
        assert done.wait(30), got
    assert got == [f"live {n}" for n in range(20)], got


def check_buffered(emulator):
    delivered, failed = [], []
    with emulator.producer() as producer:
        ids = producer.get_partition_ids()
        before = sum(last_sequence(producer, n) for n in ids)
    buffered = emulator.producer(
        buffered_mode=True,
        max_wait_time=0.1,
        on_success=lambda events, _id: delivered.extend(events),
        on_error=lambda events, _id, error: failed.append(error),
    )
    with buffered:
        for n in range(500):
            buffered.send_event(EventData(f"buffered {n}"), partition_key=f"key {n % 16}")
        buffered.flush(timeout=30)
    with emulator.producer() as producer:
        after = sum(last_sequence(producer, n) for n in ids)
    assert not failed, failed
    assert (len(delivered), after - before) == (500, 500), (len(delivered), after - before)


def check_many_connections(emulator):
    def work(n):
        with emulator.producer() as producer:
            for _ in range(10):
                producer.send_event(EventData(f"worker {n}"), partition_id=str(n % PARTITIONS))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for job in [pool.submit(work, n) for n in range(8)]:
            job.result(timeout=STEP_LIMIT)


def expect_failure(action, kinds):
    try:
        action()
    except kinds:
        return
    raise AssertionError("no error was raised")


def check_refusals(emulator):
    def send(**options):
        with emulator.producer(retry_total=0, **options) as producer:
            producer.send_event(EventData("lost"), partition_id="0")

    expect_failure(lambda: send(key="wrong"), (AuthenticationError, ConnectError))
    expect_failure(lambda: send(hub="nohub"), (EventHubError,))
    send()


CHECKS = [
    check_properties,
    check_partition,
    check_single,
    check_key,
    check_round_robin,
    check_large,
    check_positions,
    check_live,
    check_buffered,
    check_many_connections,
    check_refusals,
]


def run(check, emulator):
    """Runs one check on its own thread, so that a hang fails it and not the run."""
    failure = []

    def body():
        try:
            check(emulator)
        except BaseException:  # the trace is the report
            failure.append(traceback.format_exc())

    thread = threading.Thread(target=body, daemon=True)
    started = time.monotonic()
    thread.start()
    thread.join(STEP_LIMIT)
    if thread.is_alive():
        failure.append(f"no end after {STEP_LIMIT} s\n")
    verdict = "FAILED" if failure else "ok"
    print(f"{check.__name__:24} {verdict} {time.monotonic() - started:.1f} s", flush=True)
    for text in failure:
        print(text, flush=True)
    return not failure


def main():
    emulator = Emulator(sys.argv[1])
    results = [run(check, emulator) for check in CHECKS]
    try:
        results.append(emulator.stop() == 0)
    except subprocess.TimeoutExpired:
        results.append(False)
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    # Threads of a check that hangs must not keep the process alive.
    sys.stdout.flush()
    os._exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
