// A read-only FUSE file system that shows a folder and lets each read request take a fixed time: an
// emulated network file system or object store. Mounted several times, each mount is a node with a
// page cache of its own, and all read one disk. It speaks the kernel's protocol by itself, so it
// needs no libfuse. Root only, as it calls mount(2).
//
//     store FOLDER REQUEST_US SEEK_US BYTES_PER_SECOND MOUNTPOINT...
//
// The disk serves one request after the other: SEEK_US for one that does not go on where the last one
// ended, and its bytes at BYTES_PER_SECOND (0: at once). REQUEST_US pass before that.
//
// As libfuse's defaults: read-ahead 128 KiB, at most 12 read-ahead requests in flight (the kernel's
// own limit), direct reads in pieces of 1 MiB at a time. Prints "ready"; at SIGUSR1 the read requests,
// bytes and seeks since the last one; SIGTERM unmounts and ends.

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint32_t kLongestRead = 1 << 20;
constexpr uint32_t kReadAhead = 128 << 10;
constexpr int kThreads = 64;
constexpr uint64_t kCached = 3600;  // seconds that names and attributes may be kept

thread_local int device;  // of the mount that a thread serves
long delay_ns, seek_ns;
double ns_per_byte;
std::atomic<long> requests{0}, bytes{0}, seeks{0};

thread_local uint64_t ticket;  // of a read request: they come to the disk as they came to a mount
std::atomic<uint64_t> tickets{0};
std::mutex disk_mutex;
std::condition_variable disk_turn;
uint64_t disk_ticket = 0;
uint64_t head_node = 0, head_offset = 0;  // where the disk's last request ended
std::chrono::steady_clock::time_point disk_free;

std::mutex nodes_mutex;
std::vector<std::string> paths;  // node id - 1 -> path
std::map<std::string, uint64_t> ids;

uint64_t Node(const std::string& path) {
  std::lock_guard<std::mutex> lock(nodes_mutex);
  const auto [found, added] = ids.emplace(path, paths.size() + 1);
  if (added) paths.push_back(path);
  return found->second;
}

std::string Path(uint64_t node) {
  std::lock_guard<std::mutex> lock(nodes_mutex);
  return paths.at(node - 1);
}

void Reply(uint64_t unique, int error, const void* data, size_t size) {
  fuse_out_header header{};
  header.len = static_cast<uint32_t>(sizeof header + size);
  header.error = -error;
  header.unique = unique;
  const iovec parts[] = {{&header, sizeof header}, {const_cast<void*>(data), size}};
  if (writev(device, parts, size ? 2 : 1) < 0 && errno != ENOENT) perror("store: reply");
}

// Waits until the disk has read this. Times add up on the disk's own clock, so that sleeping too
// long does not make it slower.
void Disk(uint64_t node, uint64_t offset, size_t size) {
  if (!seek_ns && ns_per_byte <= 0) return;
  std::chrono::steady_clock::time_point until;
  {
    std::unique_lock<std::mutex> lock(disk_mutex);
    disk_turn.wait(lock, [] { return ticket == disk_ticket; });
    disk_ticket++;
    const bool seek = node != head_node || offset != head_offset;
    head_node = node, head_offset = offset + size;
    seeks += seek;
    const auto cost = static_cast<long>(static_cast<double>(size) * ns_per_byte) + seek * seek_ns;
    disk_free = std::max(disk_free, std::chrono::steady_clock::now()) + std::chrono::nanoseconds(cost);
    until = disk_free;
  }
  disk_turn.notify_all();
  std::this_thread::sleep_until(until);
}

fuse_attr Attributes(const struct stat& status) {
  fuse_attr attr{};
  attr.ino = status.st_ino;
  attr.size = static_cast<uint64_t>(status.st_size);
  attr.blocks = static_cast<uint64_t>(status.st_blocks);
  attr.atime = static_cast<uint64_t>(status.st_atim.tv_sec);
  attr.mtime = static_cast<uint64_t>(status.st_mtim.tv_sec);
  attr.ctime = static_cast<uint64_t>(status.st_ctim.tv_sec);
  attr.mtimensec = static_cast<uint32_t>(status.st_mtim.tv_nsec);
  attr.ctimensec = static_cast<uint32_t>(status.st_ctim.tv_nsec);
  attr.mode = status.st_mode;
  attr.nlink = static_cast<uint32_t>(status.st_nlink);
  attr.blksize = 4096;
  return attr;
}

void Handle(char* request, std::vector<char>& buffer) {
  const auto* in = reinterpret_cast<fuse_in_header*>(request);
  char* body = request + sizeof *in;
  const uint64_t unique = in->unique;
  switch (in->opcode) {
    case FUSE_INIT: {
      const auto* init = reinterpret_cast<fuse_init_in*>(body);
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = FUSE_KERNEL_MINOR_VERSION;
      out.max_readahead = std::min(init->max_readahead, kReadAhead);
      out.flags = init->flags & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_MAX_PAGES |
                                 FUSE_PARALLEL_DIROPS | FUSE_BIG_WRITES);
      out.max_write = kLongestRead;
      out.max_pages = kLongestRead / 4096;
      out.time_gran = 1;
      return Reply(unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
      const std::string path = Path(in->nodeid) + "/" + body;
      struct stat status;
      if (lstat(path.c_str(), &status)) return Reply(unique, errno, nullptr, 0);
      fuse_entry_out out{};
      out.nodeid = Node(path);
      out.entry_valid = out.attr_valid = kCached;
      out.attr = Attributes(status);
      return Reply(unique, 0, &out, sizeof out);
    }
    case FUSE_GETATTR: {
      struct stat status;
      if (lstat(Path(in->nodeid).c_str(), &status)) return Reply(unique, errno, nullptr, 0);
      fuse_attr_out out{};
      out.attr_valid = kCached;
      out.attr = Attributes(status);
      return Reply(unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN: {
      const auto* open_in = reinterpret_cast<fuse_open_in*>(body);
      if ((open_in->flags & O_ACCMODE) != O_RDONLY) return Reply(unique, EROFS, nullptr, 0);
      const int descriptor = open(Path(in->nodeid).c_str(), O_RDONLY | O_CLOEXEC);
      if (descriptor < 0) return Reply(unique, errno, nullptr, 0);
      fuse_open_out out{};
      out.fh = static_cast<uint64_t>(descriptor);
      out.open_flags = FOPEN_KEEP_CACHE;
      return Reply(unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
      const auto* read_in = reinterpret_cast<fuse_read_in*>(body);
      const timespec delay{delay_ns / 1000000000, delay_ns % 1000000000};
      nanosleep(&delay, nullptr);
      const ssize_t got = pread(static_cast<int>(read_in->fh), buffer.data(),
                                std::min<size_t>(read_in->size, buffer.size()),
                                static_cast<off_t>(read_in->offset));
      const int error = errno;
      Disk(in->nodeid, read_in->offset, static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got < 0) return Reply(unique, error, nullptr, 0);
      requests++;
      bytes += got;
      return Reply(unique, 0, buffer.data(), static_cast<size_t>(got));
    }
    case FUSE_READLINK: {
      const ssize_t got = readlink(Path(in->nodeid).c_str(), buffer.data(), buffer.size());
      if (got < 0) return Reply(unique, errno, nullptr, 0);
      return Reply(unique, 0, buffer.data(), static_cast<size_t>(got));
    }
    case FUSE_RELEASE:
      close(static_cast<int>(reinterpret_cast<fuse_release_in*>(body)->fh));
      return Reply(unique, 0, nullptr, 0);
    case FUSE_OPENDIR: {
      const fuse_open_out out{};
      return Reply(unique, 0, &out, sizeof out);
    }
    case FUSE_READDIR: {
      // the whole folder in one reply: it shows a handful of databases
      const auto* read_in = reinterpret_cast<fuse_read_in*>(body);
      std::vector<char> out;
      DIR* folder = read_in->offset ? nullptr : opendir(Path(in->nodeid).c_str());
      while (const dirent* entry = folder ? readdir(folder) : nullptr) {
        const size_t length = strlen(entry->d_name);
        const size_t at = out.size();
        const size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
        if (at + size > read_in->size) break;
        out.resize(at + size);
        auto* told = reinterpret_cast<fuse_dirent*>(out.data() + at);
        told->ino = entry->d_ino;
        told->off = at + size;
        told->namelen = static_cast<uint32_t>(length);
        told->type = entry->d_type;
        memcpy(told->name, entry->d_name, length);
      }
      if (folder) closedir(folder);
      return Reply(unique, 0, out.data(), out.size());
    }
    case FUSE_STATFS: {
      fuse_statfs_out out{};
      out.st.bsize = out.st.frsize = 4096;
      out.st.namelen = 255;
      return Reply(unique, 0, &out, sizeof out);
    }
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_ACCESS:
      return Reply(unique, 0, nullptr, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;
    case FUSE_CREATE:
    case FUSE_WRITE:
    case FUSE_SETATTR:
    case FUSE_UNLINK:
    case FUSE_RENAME:
    case FUSE_RENAME2:
      return Reply(unique, EROFS, nullptr, 0);
    default:
      return Reply(unique, ENOSYS, nullptr, 0);
  }
}

void Serve(int mount, std::mutex* intake) {
  device = mount;
  std::vector<char> request(kLongestRead + 8192), buffer(kLongestRead);
  for (;;) {
    ssize_t got;
    {
      std::lock_guard<std::mutex> lock(*intake);
      got = read(device, request.data(), request.size());
      const auto* in = reinterpret_cast<const fuse_in_header*>(request.data());
      if (got > 0 && in->opcode == FUSE_READ) ticket = tickets++;
    }
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
    if (got <= 0) return;  // ENODEV: unmounted
    Handle(request.data(), buffer);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) {
    fprintf(stderr, "usage: store FOLDER REQUEST_US SEEK_US BYTES_PER_SECOND MOUNTPOINT...\n");
    return 2;
  }
  delay_ns = atol(arguments[2]) * 1000;
  seek_ns = atol(arguments[3]) * 1000;
  ns_per_byte = atof(arguments[4]) > 0 ? 1e9 / atof(arguments[4]) : 0;
  Node(arguments[1]);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::vector<std::thread> threads;
  std::vector<std::mutex> intakes(static_cast<size_t>(count));
  for (int place = 5; place < count; place++) {
    const int mount_device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options = "fd=" + std::to_string(mount_device) +
                                ",rootmode=40000,user_id=0,group_id=0,allow_other";
    if (mount_device < 0 || mount("dltune-store", arguments[place], "fuse.dltune-store",
              MS_RDONLY | MS_NOSUID | MS_NODEV, options.c_str())) {
      perror(mount_device < 0 ? "store: /dev/fuse" : "store: mount");
      for (int before = 5; before < place; before++) umount2(arguments[before], MNT_DETACH);
      _exit(1);
    }
    for (int i = 0; i < kThreads; i++) {
      threads.emplace_back(Serve, mount_device, &intakes[static_cast<size_t>(place)]);
    }
  }
  puts("ready");
  fflush(stdout);
  for (int which; !sigwait(&ends, &which) && which == SIGUSR1;) {
    printf("%ld %ld %ld\n", requests.exchange(0), bytes.exchange(0), seeks.exchange(0));
    fflush(stdout);
  }
  for (int place = 5; place < count; place++) umount2(arguments[place], MNT_DETACH);
  _exit(0);
}
