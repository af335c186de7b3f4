#!/usr/bin/env python3
"""Sends by one TCP connection as fast as the kernel lets it and looks at its TCP_INFO every 10 ms.

    source.py CONTROLLER SECONDS WARM_UP CURVE     prints one line of JSON

CURVE is a file for the congestion window (time in seconds, window and bytes in flight in
segments), or - for none.
"""
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time

STEP = 0.010


def info(sock):
    """What linux/tcp.h calls struct tcp_info, as far as it matters here."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    word = lambda at: struct.unpack_from("=I", raw, at)[0]
    long = lambda at: struct.unpack_from("=Q", raw, at)[0]
    return {
        "unacked": word(24), "sacked": word(28), "lost": word(32), "retrans": word(36),
        "mss": word(16), "rtt": word(68), "ssthresh": word(76), "cwnd": word(80),
        "total_retrans": word(100), "bytes_acked": long(120), "segments": word(156),
        "window_limited": long(176), "buffer_limited": long(184),
    }


def counters():
    """The namespace's own TcpExt counters."""
    with open("/proc/self/net/netstat") as file:
        lines = [line.split() for line in file if line.startswith("TcpExt:")]
    return {name: int(value) for name, value in zip(lines[0][1:], lines[1][1:])}


def hurry():
    """Who is preempted while it holds the lock of its socket turns a row of acknowledgements into
    one burst: not the network's doing."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
    except PermissionError:
        pass


def main():
    controller, seconds, warm_up, curve = sys.argv[1:5]
    seconds, warm_up = float(seconds), float(warm_up)
    hurry()
    if not os.environ.get("SUPER_PACKETS"):
        # Else the kernel saves up a millisecond of data and sends it as one burst.
        subprocess.run(["ip", "link", "set", "wan0", "gso_max_segs", "1"], check=True)
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, controller.encode())
    sock.connect((os.environ["PACKTRAIN_FAR"], 5001))
    start = time.monotonic()
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    block = bytes(256 * 1024)
    points, rtts, marks, next_sample = [], [], None, 0.0
    while True:
        now = time.monotonic() - start
        if now >= next_sample:
            seen = info(sock)
            flight = seen["unacked"] - seen["sacked"] - seen["lost"] + seen["retrans"]
            points.append((now, seen["cwnd"], flight))
            if marks is not None:
                rtts.append(seen["rtt"])
            elif now >= warm_up:
                marks = (now, seen, counters())
            if now >= seconds:
                break
            next_sample = (int(now / STEP) + 1) * STEP
        wait = max(0.0, next_sample - (time.monotonic() - start))
        if poll.poll(wait * 1000):
            try:
                sock.send(block)
            except BlockingIOError:
                pass
    then, before, old = marks
    new = counters()
    count = lambda name: new.get(name, 0) - old.get(name, 0)
    print(json.dumps({
        "goodput_bps": round((seen["bytes_acked"] - before["bytes_acked"]) * 8 / (now - then)),
        "loss_events": count("TCPSackRecovery") + count("TCPRenoRecovery"),
        "timeouts": count("TCPTimeouts"),
        "repeated_packets": seen["total_retrans"] - before["total_retrans"],
        "sent_packets": seen["segments"] - before["segments"],
        "mean_rtt_us": round(sum(rtts) / len(rtts)),
        "mss": seen["mss"],
        "limited_us": seen["window_limited"] + seen["buffer_limited"],
        "probes": count("TCPLossProbes"),
        "lost_retransmits": count("TCPLostRetransmit"),
        "hystart": new.get("TCPHystartTrainDetect", 0) + new.get("TCPHystartDelayDetect", 0),
    }), flush=True)
    if curve != "-":
        with open(curve, "w") as file:
            file.writelines(f"{at:.3f} {cwnd} {flight}\n" for at, cwnd, flight in points)
    # Nobody waits for what is still in the buffer.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


main()
