// A read-only FUSE file system that shows a folder and lets each read request take a fixed time: an
// emulated network file system or object store. It speaks the kernel's protocol by itself, so it
// needs no libfuse. Root only, as it calls mount(2).
//
//     store FOLDER MOUNTPOINT MICROSECONDS
//
// As libfuse's defaults: read-ahead 128 KiB, at most 12 read-ahead requests in flight (the kernel's
// own limit), direct reads in pieces of 1 MiB at a time. Prints "ready"; at SIGUSR1 the read requests
// and bytes served since the last one; SIGTERM unmounts and ends.

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

int device;
long delay_ns;
const char* mounted;
std::atomic<long> requests{0}, bytes{0};

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
      if (got < 0) return Reply(unique, errno, nullptr, 0);
      requests++;
      bytes += got;
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

void Serve() {
  std::vector<char> request(kLongestRead + 8192), buffer(kLongestRead);
  for (;;) {
    const ssize_t got = read(device, request.data(), request.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
    if (got <= 0) return;  // ENODEV: unmounted
    Handle(request.data(), buffer);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: store FOLDER MOUNTPOINT MICROSECONDS\n");
    return 2;
  }
  mounted = arguments[2];
  delay_ns = atol(arguments[3]) * 1000;
  Node(arguments[1]);
  device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    perror("store: /dev/fuse");
    return 1;
  }
  const std::string options = "fd=" + std::to_string(device) +
                              ",rootmode=40000,user_id=0,group_id=0,allow_other";
  if (mount("dltune-store", mounted, "fuse.dltune-store", MS_RDONLY | MS_NOSUID | MS_NODEV,
            options.c_str())) {
    perror("store: mount");
    return 1;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) threads.emplace_back(Serve);
  puts("ready");
  fflush(stdout);
  for (int which; !sigwait(&ends, &which) && which == SIGUSR1;) {
    printf("%ld %ld\n", requests.exchange(0), bytes.exchange(0));
    fflush(stdout);
  }
  umount2(mounted, MNT_DETACH);
  _exit(0);
}
