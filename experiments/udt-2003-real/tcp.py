#!/usr/bin/env python3
"""TCP flows for measure.py.

    tcp.py sink
    tcp.py long CONTROLLER FLOWS SECONDS WARM_UP
    tcp.py short CONTROLLER CONNECTIONS BYTES CONCURRENT

The sink takes connections and throws away what comes. The others print one line of JSON: the goodput of
each flow after the warm-up, by what was acknowledged; or how long all connections took together, each
from its first packet until the sink has closed it.
"""
import json
import os
import socket
import struct
import sys
import threading
import time

PORT = 5001
BLOCK = bytes(256 * 1024)


def sink():
    listener = socket.create_server((os.environ["PACKTRAIN_FAR"], PORT), backlog=1024)

    def take(sock):
        room = bytearray(1 << 18)
        try:
            while sock.recv_into(room):
                pass
        except ConnectionError:
            pass
        sock.close()

    while True:
        sock, _ = listener.accept()
        threading.Thread(target=take, args=(sock,), daemon=True).start()


def connect(controller):
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, controller.encode())
    sock.connect((os.environ["PACKTRAIN_FAR"], PORT))
    return sock


def acknowledged(sock):
    """tcpi_bytes_acked of linux/tcp.h."""
    return struct.unpack_from("=Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 120)[0]


def long(controller, flows, seconds, warm_up):
    socks = [connect(controller) for _ in range(flows)]

    def pump(sock):
        try:
            while True:
                sock.sendall(BLOCK)
        except OSError:
            pass

    start = time.monotonic()
    for sock in socks:
        threading.Thread(target=pump, args=(sock,), daemon=True).start()
    time.sleep(warm_up)
    then, before = time.monotonic(), [acknowledged(sock) for sock in socks]
    time.sleep(max(0.0, start + seconds - then))
    now, after = time.monotonic(), [acknowledged(sock) for sock in socks]
    each = [round((b - a) * 8 / (now - then)) for a, b in zip(before, after)]
    print(json.dumps({"event": "tcp", "goodput_bps": sum(each), "each_bps": each}), flush=True)
    os._exit(0)


def short(controller, connections, size, concurrent):
    left, lock, times = [connections], threading.Lock(), []

    def work():
        while True:
            with lock:
                if not left[0]:
                    return
                left[0] -= 1
            start = time.monotonic()
            sock = connect(controller)
            sock.sendall(bytes(size))
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
            sock.close()
            times.append(time.monotonic() - start)

    start = time.monotonic()
    workers = [threading.Thread(target=work) for _ in range(concurrent)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    span = time.monotonic() - start
    print(json.dumps({"event": "tcp", "goodput_bps": round(connections * size * 8 / span),
                      "mean_seconds": round(sum(times) / len(times), 3)}), flush=True)


if sys.argv[1] == "sink":
    sink()
elif sys.argv[1] == "long":
    long(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
else:
    short(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
