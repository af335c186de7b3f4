// A peer for the bench: one stock UDT4 connection from memory to memory, in clear.
//
//   udt-bulk server PORT              udt-bulk client HOST PORT SECONDS
//
// The server serves one connection and prints one JSON line: what it received, over the time
// from the first byte to the last.
// Build: g++ -O2 -o udt-bulk udt-bulk.cpp -ludt

#include <arpa/inet.h>
#include <netdb.h>
#include <udt/udt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static void die(const char* what) {
    std::fprintf(stderr, "udt-bulk: %s: %s\n", what, UDT::getlasterror().getErrorMessage());
    std::exit(1);
}

static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Large windows for long paths; the UDP buffers are cut to rmem_max and wmem_max by the kernel.
static void tune(UDTSOCKET s) {
    int window = 25600 * 4, buffer = 128 << 20, udp = 64 << 20;
    UDT::setsockopt(s, 0, UDT_FC, &window, sizeof window);
    UDT::setsockopt(s, 0, UDT_SNDBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDT_RCVBUF, &buffer, sizeof buffer);
    UDT::setsockopt(s, 0, UDP_SNDBUF, &udp, sizeof udp);
    UDT::setsockopt(s, 0, UDP_RCVBUF, &udp, sizeof udp);
}

static int serve(int port) {
    UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
    tune(s);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = INADDR_ANY;
    if (UDT::bind(s, reinterpret_cast<sockaddr*>(&at), sizeof at) == UDT::ERROR) die("bind");
    if (UDT::listen(s, 1) == UDT::ERROR) die("listen");
    sockaddr_in peer{};
    int len = sizeof peer;
    UDTSOCKET c = UDT::accept(s, reinterpret_cast<sockaddr*>(&peer), &len);
    if (c == UDT::INVALID_SOCK) die("accept");
    std::vector<char> block(1 << 20);
    unsigned long long bytes = 0;
    Clock::time_point first{};
    double time = 0;
    for (;;) {
        int got = UDT::recv(c, block.data(), static_cast<int>(block.size()), 0);
        if (got == UDT::ERROR) break;  // the other side closed
        if (bytes == 0) first = Clock::now();
        bytes += static_cast<unsigned long long>(got);
        time = seconds_since(first);
    }
    std::printf("{\"ok\":true,\"bytes\":%llu,\"seconds\":%.3f,\"goodput_bps\":%.0f}\n", bytes, time,
                time > 0 ? static_cast<double>(bytes) * 8 / time : 0.0);
    std::fflush(stdout);
    UDT::close(c);
    UDT::close(s);
    return 0;
}

static int send_to(const char* host, int port, double seconds) {
    UDTSOCKET s = UDT::socket(AF_INET, SOCK_STREAM, 0);
    tune(s);
    linger quick{1, 2};  // what is still queued after two seconds is not worth waiting for
    UDT::setsockopt(s, 0, UDT_LINGER, &quick, sizeof quick);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1) die("address");
    if (UDT::connect(s, reinterpret_cast<sockaddr*>(&at), sizeof at) == UDT::ERROR) die("connect");
    std::vector<char> block(1 << 20, 0x5a);
    const Clock::time_point start = Clock::now();
    while (seconds_since(start) < seconds) {
        int done = 0;
        while (done < static_cast<int>(block.size())) {
            int sent = UDT::send(s, block.data() + done, static_cast<int>(block.size()) - done, 0);
            if (sent == UDT::ERROR) die("send");
            done += sent;
        }
    }
    UDT::close(s);
    return 0;
}

int main(int argc, char** argv) {
    UDT::startup();
    int code = 2;
    if (argc == 3 && !std::strcmp(argv[1], "server")) {
        code = serve(std::atoi(argv[2]));
    } else if (argc == 5 && !std::strcmp(argv[1], "client")) {
        code = send_to(argv[2], std::atoi(argv[3]), std::atof(argv[4]));
    } else {
        std::fprintf(stderr, "udt-bulk server PORT | client HOST PORT SECONDS\n");
    }
    UDT::cleanup();
    return code;
}
