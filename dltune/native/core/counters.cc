#include "counters.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "channel.h"

namespace dltune {
namespace {

std::mutex g_mu;
// What threads use is never destroyed: they run on while the process exits.
auto& g_groups = *new std::vector<CounterGroup*>;
auto& g_counted = *new std::set<int>;  // threads whose counters were opened

int Open(const CounterEvent& event, int thread, int leader) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = event.type;
  attr.config = event.config;
  attr.config1 = event.config1;
  attr.config2 = event.config2;
  attr.exclude_kernel = event.exclude_kernel;
  attr.exclude_hv = event.exclude_kernel;
  attr.disabled = leader < 0;
  attr.read_format =
      PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attr, thread, -1, leader, PERF_FLAG_FD_CLOEXEC));
}

void Refuse(CounterGroup* group, int error) {
  if (group->refused.exchange(true)) return;
  Complain("counting stopped: a thread of the job could not open or read its counters (" +
           std::string(strerror(error)) + ")");
}

// minor and major faults, voluntary and involuntary switches, ns on a CPU
struct Usage {
  unsigned long long minor = 0, major = 0, voluntary = 0, involuntary = 0, cpu = 0;
};

std::string Contents(const std::string& path) {
  std::string text(4096, '\0');
  FILE* file = fopen(path.c_str(), "r");
  if (!file) return "";
  text.resize(fread(&text[0], 1, text.size(), file));
  fclose(file);
  return text;
}

Usage UsageOfThread(const std::string& folder) {
  Usage usage;
  const std::string stat = Contents(folder + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end != std::string::npos)
    sscanf(stat.c_str() + name_end + 2, "%*c %*d %*d %*d %*d %*d %*u %llu %*u %llu", &usage.minor,
           &usage.major);
  const std::string status = Contents(folder + "/status");
  const size_t switches = status.find("\nvoluntary_ctxt_switches:");
  if (switches != std::string::npos)
    sscanf(status.c_str() + switches + 1,
           "voluntary_ctxt_switches: %llu nonvoluntary_ctxt_switches: %llu", &usage.voluntary,
           &usage.involuntary);
  sscanf(Contents(folder + "/schedstat").c_str(), "%llu", &usage.cpu);
  return usage;
}

// One list may lack a thread that lives, after one that ended meanwhile (dltune/system/proc/stat.py).
std::set<int> Threads() {
  std::set<int> found;
  for (int lists = 0; lists < 3; ++lists) {
    DIR* const tasks = opendir("/proc/self/task");
    if (!tasks) break;
    while (const dirent* entry = readdir(tasks))
      if (entry->d_name[0] != '.') found.insert(atoi(entry->d_name));
    closedir(tasks);
  }
  return found;
}

Usage UsageOfProcess() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const auto count = [](long counted) { return static_cast<unsigned long long>(counted); };
  return {count(used.ru_minflt), count(used.ru_majflt), count(used.ru_nvcsw),
          count(used.ru_nivcsw), cpu.tv_sec * 1000000000ull + cpu.tv_nsec};
}

}  // namespace

void Counts::Add(const Counts& other) {
  n = std::max(n, other.n);
  for (int i = 0; i < other.n; i++) value[i] += other.value[i];
  running = std::min(running, other.running);
  complete = complete && other.complete;
}

CounterGroup* FindCounterGroup(const std::vector<CounterEvent>& events) {
  std::lock_guard<std::mutex> lock(g_mu);
  for (CounterGroup* group : g_groups)
    if (group->events == events) return group;
  auto* made = new CounterGroup;
  made->events = events;
  g_groups.push_back(made);
  return made;
}

ThreadCounters::ThreadCounters(int thread) : thread_(thread) {}

ThreadCounters::~ThreadCounters() {
  for (auto& [group, handles] : opened_)
    for (int handle : handles) close(handle);
  if (opened_.empty()) return;
  std::lock_guard<std::mutex> lock(g_mu);
  g_counted.erase(thread_);
}

Reading ThreadCounters::Read(CounterGroup* group) {
  Reading reading;
  const Handles& mine = Switch(group);
  if (mine.empty()) return reading;
  uint64_t raw[3 + kMaxCounters];
  const ssize_t wanted = static_cast<ssize_t>((3 + group->events.size()) * sizeof raw[0]);
  if (read(mine[0], raw, sizeof raw) != wanted) {
    Refuse(group, errno);
    return reading;
  }
  reading.valid = true;
  reading.enabled = raw[1];
  reading.running = raw[2];
  std::copy_n(raw + 3, group->events.size(), reading.value);
  return reading;
}

size_t ThreadCounters::FilesBeside(CounterGroup* group) const {
  size_t files = 0;
  for (const auto& [other, handles] : opened_) files += other == group ? 0 : handles.size();
  return files;
}

// Only the group asked for last counts, so that groups never share the counters.
const ThreadCounters::Handles& ThreadCounters::Switch(CounterGroup* group) {
  if (current_ && current_->first == group) return current_->second;
  if (current_) Command(PERF_EVENT_IOC_DISABLE);
  const auto [opened, fresh] = opened_.try_emplace(group);
  if (fresh) opened->second = OpenAll(group);
  current_ = &*opened;
  Command(PERF_EVENT_IOC_ENABLE);
  return current_->second;
}

void ThreadCounters::Command(unsigned long command) {
  if (!current_->second.empty()) ioctl(current_->second[0], command, PERF_IOC_FLAG_GROUP);
}

ThreadCounters::Handles ThreadCounters::OpenAll(CounterGroup* group) {
  Handles handles;
  for (const CounterEvent& event : group->events) {
    const int handle = Open(event, thread_, handles.empty() ? -1 : handles[0]);
    if (handle < 0) {
      Refuse(group, errno);
      for (int open : handles) close(open);
      return {};
    }
    handles.push_back(handle);
  }
  std::lock_guard<std::mutex> lock(g_mu);
  g_counted.insert(thread_);
  return handles;
}

Reading ReadCounters(CounterGroup* group) {
  thread_local ThreadCounters mine(static_cast<int>(syscall(SYS_gettid)));
  return mine.Read(group);
}

Counts Between(const CounterGroup& group, const Reading& before, const Reading& after) {
  Counts counts;
  counts.n = static_cast<int>(group.events.size());
  const uint64_t enabled = after.enabled - before.enabled;
  const uint64_t running = after.running - before.running;
  // enabled for some time and never on the counters: nothing is known
  if (!before.valid || !after.valid || (enabled > 0 && running == 0)) {
    counts.complete = false;
    return counts;
  }
  counts.running = enabled > 0 ? std::min(1.0, static_cast<double>(running) / enabled) : 1.0;
  for (int i = 0; i < counts.n; i++)
    counts.value[i] = static_cast<double>(after.value[i] - before.value[i]) / counts.running;
  return counts;
}

void SendTotals() {
  std::vector<Json> threads, ops;
  std::set<int> counted;
  std::vector<CounterGroup*> groups;
  {
    std::lock_guard<std::mutex> lock(g_mu);
    counted = g_counted;
    groups = g_groups;
  }
  for (CounterGroup* group : groups) {
    std::lock_guard<std::mutex> lock(group->mu);
    const double* const first = group->in_ops.value;
    ops.push_back(List(std::vector<double>(first, first + group->events.size())));
  }
  for (const int tid : Threads()) {
    const Usage usage = UsageOfThread("/proc/self/task/" + std::to_string(tid));
    threads.push_back(List({tid, counted.count(tid) > 0, usage.minor, usage.major,
                            usage.voluntary, usage.involuntary, usage.cpu}));
  }
  const Usage all = UsageOfProcess();
  Send([=] {
    return Object({{"type", "totals"},
                   {"process", List({all.minor, all.major, all.voluntary, all.involuntary,
                                     all.cpu})},
                   {"threads", List(threads)},
                   {"ops", List(ops)}});
  });
}

}  // namespace dltune
