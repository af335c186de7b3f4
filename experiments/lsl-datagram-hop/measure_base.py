"""Namespaces in a row and a folder for measurements with real processes."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def run(*words, **more):
    return subprocess.run(words, check=True, **more)


class Row:
    """Namespaces in a row; each reaches its neighbours, and the ends reach each other by depots alone."""

    def __init__(self, hosts=4):
        self.names = [f"ptdh{os.getpid()}{x}" for x in "abcd"[:hosts]]

    def __enter__(self):
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for hop, (a, b) in enumerate(zip(self.names, self.names[1:]), 1):
            run("ip", "link", "add", f"ptdh{hop}l", "netns", a, "mtu", "1500", "type", "veth", "peer", "name",
                f"ptdh{hop}r", "netns", b, "mtu", "1500")
            for end, name, device in ((1, a, f"ptdh{hop}l"), (2, b, f"ptdh{hop}r")):
                run("ip", "-n", name, "address", "add", f"10.97.{hop}.{end}/24", "dev", device)
                run("ip", "-n", name, "link", "set", device, "up")
        return self

    def forward(self):
        """The ends reach each other directly too."""
        last = len(self.names) - 1
        for host, name in enumerate(self.names):
            run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for net in range(1, last + 1):
                if net > host + 1:
                    run("ip", "-n", name, "route", "add", f"10.97.{net}.0/24", "via", f"10.97.{host + 1}.2")
                if net < host:
                    run("ip", "-n", name, "route", "add", f"10.97.{net}.0/24", "via", f"10.97.{host}.1")

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name])

    def at(self, host, *words):
        return ["ip", "netns", "exec", self.names[host], *words]


class Lab:
    """A folder in memory: keys, a file that nothing makes shorter, and everybody's state."""

    def __init__(self, packtrain, megabytes):
        self.packtrain, self.megabytes = packtrain, megabytes

    def __enter__(self):
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        keys = run(self.packtrain, "key", "show", env=self.own("user"), capture_output=True, text=True).stdout
        Path(f"{self.folder}/keys").write_text(keys)
        os.mkdir(f"{self.folder}/root")
        with open(f"{self.folder}/big", "wb") as big:
            for _ in range(self.megabytes):
                big.write(os.urandom(1 << 20))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def own(self, name):
        """An environment with configuration and state of its own."""
        places = {f"XDG_{what}_HOME": f"{self.folder}/{name}/{what.lower()}" for what in ("CONFIG", "STATE")}
        return dict(os.environ, **places)
