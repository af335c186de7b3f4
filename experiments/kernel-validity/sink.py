#!/usr/bin/env python3
"""Takes one TCP connection and throws away what comes."""
import os
import socket

try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
except PermissionError:
    pass
listener = socket.create_server((os.environ["PACKTRAIN_FAR"], 5001))
sock, _ = listener.accept()
room = bytearray(1 << 20)
try:
    while sock.recv_into(room):
        pass
except ConnectionResetError:
    pass
