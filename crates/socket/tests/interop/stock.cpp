// The stock library's end of an interoperation test: one connection, made and used as the words
// on the command line say. Prints one line about what came of it.
//
//   stock ROLE key=value...
//
// ROLE: source      sends `bytes` of the pattern, closes
//       sink        receives until the peer closes, prints count and digest
//       serve-file  the library's file server demo: i32 length and name in, i64 size and bytes out
//       fetch-file  its client: prints count and digest of what came
// keys: how=listen|connect|rendezvous  addr=IP  port=N  local=N  mode=stream|message
//       bytes=N  message=N (largest message)  inorder=0|1  fc=N  rcvbuf=N  sndbuf=N  mss=N
//       files=N (connections that serve-file takes)  name=FILE  raw=1 (no pattern, no digest)

#include <arpa/inet.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <udt/udt.h>

static std::map<std::string, std::string> words;

static std::string word(const char* key, const char* otherwise) {
  auto found = words.find(key);
  return found == words.end() ? otherwise : found->second;
}

static long long number(const char* key, long long otherwise) {
  auto found = words.find(key);
  return found == words.end() ? otherwise : atoll(found->second.c_str());
}

[[noreturn]] static void fail(const char* what) {
  printf("failed %s: %s\n", what, UDT::getlasterror().getErrorMessage());
  fflush(stdout);
  _exit(1);
}

// Byte `at` of the pattern that both ends know: words of a mixing function of their number.
static uint64_t mixed(uint64_t n) {
  n += 0x9e3779b97f4a7c15ULL;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
  return n ^ (n >> 31);
}

static void fill(uint64_t at, char* out, size_t len) {
  for (size_t i = 0; i < len; i++, at++) out[i] = char(mixed(at / 8) >> (at % 8 * 8));
}

// FNV-1a, 64 bits.
struct Digest {
  uint64_t sum = 0xcbf29ce484222325ULL;
  void add(const char* bytes, size_t len) {
    for (size_t i = 0; i < len; i++) sum = (sum ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
  }
};

// Sizes of the messages of a test: from 1 to `largest`, by a fixed rule.
static size_t size_of_message(uint64_t n, size_t largest) { return 1 + mixed(~n) % largest; }

static sockaddr_in address(const std::string& ip, int port) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, ip.c_str(), &to.sin_addr);
  return to;
}

static UDTSOCKET made(bool message) {
  UDTSOCKET u = UDT::socket(AF_INET, message ? SOCK_DGRAM : SOCK_STREAM, 0);
  if (u == UDT::INVALID_SOCK) fail("socket");
  const struct { const char* key; UDT::SOCKOPT option; } options[] = {
      {"mss", UDT_MSS}, {"fc", UDT_FC}, {"rcvbuf", UDT_RCVBUF}, {"sndbuf", UDT_SNDBUF}};
  for (auto& o : options) {
    int value = number(o.key, 0);
    if (value && UDT::setsockopt(u, 0, o.option, &value, sizeof value) == UDT::ERROR) fail(o.key);
  }
  return u;
}

static UDTSOCKET listening(bool message) {
  UDTSOCKET u = made(message);
  sockaddr_in at = address("0.0.0.0", number("port", 9000));
  if (UDT::bind(u, (sockaddr*)&at, sizeof at) == UDT::ERROR) fail("bind");
  if (UDT::listen(u, 16) == UDT::ERROR) fail("listen");
  return u;
}

static UDTSOCKET accepted(UDTSOCKET u) {
  sockaddr_storage from;
  int len = sizeof from;
  UDTSOCKET peer = UDT::accept(u, (sockaddr*)&from, &len);
  if (peer == UDT::INVALID_SOCK) fail("accept");
  return peer;
}

static UDTSOCKET connected(bool message, bool rendezvous) {
  sockaddr_in to = address(word("addr", "127.0.0.1"), number("port", 9000));
  for (int tries = 0;; tries++) {
    UDTSOCKET u = made(message);
    if (rendezvous) {
      UDT::setsockopt(u, 0, UDT_RENDEZVOUS, &rendezvous, sizeof rendezvous);
      sockaddr_in own = address("0.0.0.0", number("local", 9000));
      if (UDT::bind(u, (sockaddr*)&own, sizeof own) == UDT::ERROR) fail("bind");
    }
    if (UDT::connect(u, (sockaddr*)&to, sizeof to) != UDT::ERROR) return u;
    // The other end may not be up yet.
    if (tries == 4) fail("connect");
    UDT::close(u);
    usleep(100000);
  }
}

static UDTSOCKET opened(bool message) {
  std::string how = word("how", "connect");
  if (how != "listen") return connected(message, how == "rendezvous");
  UDTSOCKET server = listening(message);
  UDTSOCKET peer = accepted(server);
  UDT::close(server);
  return peer;
}

static void send_all(UDTSOCKET u, const char* bytes, long long len) {
  while (len > 0) {
    int sent = UDT::send(u, bytes, int(len), 0);
    if (sent == UDT::ERROR) fail("send");
    bytes += sent;
    len -= sent;
  }
}

static bool recv_all(UDTSOCKET u, char* bytes, long long len) {
  while (len > 0) {
    int got = UDT::recv(u, bytes, int(len), 0);
    if (got == UDT::ERROR) return false;
    bytes += got;
    len -= got;
  }
  return true;
}

static void tell(long long bytes, long long messages, uint64_t digest) {
  printf("ok bytes=%lld messages=%lld digest=%016llx\n", bytes, messages,
         (unsigned long long)digest);
  fflush(stdout);
}

static void source() {
  bool message = word("mode", "stream") == "message";
  long long bytes = number("bytes", 1000000), at = 0, count = 0;
  size_t largest = number("message", 20000);
  bool raw = number("raw", 0);
  std::vector<char> block(message ? largest : 1 << 20);
  UDTSOCKET u = opened(message);
  while (at < bytes) {
    size_t len = message ? size_of_message(count, largest) : block.size();
    if ((long long)len > bytes - at) len = bytes - at;
    if (!raw) fill(at, block.data(), len);
    if (!message) {
      send_all(u, block.data(), len);
    } else if (UDT::sendmsg(u, block.data(), int(len), -1, number("inorder", 0)) != int(len)) {
      fail("sendmsg");
    }
    at += len;
    count++;
  }
  UDT::close(u);
  tell(at, message ? count : 0, 0);
}

static void sink() {
  bool message = word("mode", "stream") == "message";
  std::vector<char> block(message ? number("message", 20000) : 1 << 20);
  long long bytes = 0, count = 0;
  uint64_t sum = 0;
  Digest all;
  bool raw = number("raw", 0);
  UDTSOCKET u = opened(message);
  // A blocking recvmsg that wakes up after the peer's shutdown throws although messages wait, and
  // loses the one that it has just copied. One that does not block checks nothing after the copy.
  bool blocks = !message;
  if (UDT::setsockopt(u, 0, UDT_RCVSYN, &blocks, sizeof blocks) == UDT::ERROR) fail("rcvsyn");
  for (;;) {
    int got = message ? UDT::recvmsg(u, block.data(), int(block.size()))
                      : UDT::recv(u, block.data(), int(block.size()), 0);
    if (got == UDT::ERROR) {
      if (UDT::getlasterror().getErrorCode() != UDT::ERRORINFO::EASYNCRCV) break;
      usleep(500);
      continue;
    }
    bytes += got;
    if (message) {
      // Messages may come in any order: the sum of their digests does not depend on it.
      Digest one;
      one.add(block.data(), got);
      sum += one.sum;
      count++;
    } else if (!raw) {
      all.add(block.data(), got);
    }
  }
  if (UDT::getlasterror().getErrorCode() != UDT::ERRORINFO::ECONNLOST) fail("receive");
  tell(bytes, count, message ? sum : all.sum);
  UDT::close(u);
}

static void serve_file() {
  UDTSOCKET server = listening(false);
  for (long long left = number("files", 1); left > 0; left--) {
    UDTSOCKET u = accepted(server);
    int32_t len = 0;
    if (!recv_all(u, (char*)&len, sizeof len) || len < 0 || len > 4096) fail("length");
    std::vector<char> name(len + 1);
    if (!recv_all(u, name.data(), len)) fail("name");
    std::fstream file(name.data(), std::ios::in | std::ios::binary);
    file.seekg(0, std::ios::end);
    int64_t size = file.tellg();
    file.seekg(0, std::ios::beg);
    send_all(u, (char*)&size, sizeof size);
    int64_t offset = 0;
    if (size > 0 && UDT::sendfile(u, file, offset, size) < 0) fail("sendfile");
    UDT::close(u);
    tell(size, 0, 0);
  }
  UDT::close(server);
}

static void fetch_file() {
  UDTSOCKET u = connected(false, false);
  std::string name = word("name", "");
  int32_t len = name.size();
  send_all(u, (char*)&len, sizeof len);
  send_all(u, name.data(), len);
  int64_t size = 0;
  if (!recv_all(u, (char*)&size, sizeof size)) fail("size");
  Digest all;
  if (size > 0) {
    std::string path = word("to", "/dev/null");
    std::fstream file(path, std::ios::out | std::ios::binary | std::ios::trunc);
    int64_t offset = 0;
    if (UDT::recvfile(u, file, offset, size) < 0) fail("recvfile");
    file.close();
    std::ifstream back(path, std::ios::binary);
    std::vector<char> block(1 << 20);
    while (back.read(block.data(), block.size()) || back.gcount()) {
      all.add(block.data(), back.gcount());
    }
  }
  tell(size, 0, all.sum);
  UDT::close(u);
}

int main(int count, char** given) {
  for (int i = 2; i < count; i++) {
    const char* equals = strchr(given[i], '=');
    if (equals) words[std::string(given[i], equals - given[i])] = equals + 1;
  }
  UDT::startup();
  std::string role = count > 1 ? given[1] : "";
  if (role == "source") source();
  else if (role == "sink") sink();
  else if (role == "serve-file") serve_file();
  else if (role == "fetch-file") fetch_file();
  else return 2;
  UDT::cleanup();
  return 0;
}
