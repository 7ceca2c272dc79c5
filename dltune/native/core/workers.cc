#include "workers.h"

#include <fenv.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace dltune {
namespace {

// How long an idle worker looks for work before it sleeps. A sleeping worker costs its waker a
// system call (2 to 5 us) and itself a wake-up (5 to 50 us in a VM). While it looks it yields: the
// executor thread that it has just worked for wants the core back.
constexpr int64_t kSpinNs = 60000;

// How long an op's counts wait for its workers to let go: long enough for one whose core another
// process has for its turn.
constexpr int64_t kSettleNs = 20000000;

thread_local const View* tl_view = nullptr;
thread_local int tl_index = -1;

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // one whose CPU was taken away since stands where its starter may
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

Worker::Worker(int cpu, int name) : cpu_(cpu) {
  std::thread([this, name] {
    pthread_setname_np(pthread_self(), ("dltune/" + std::to_string(name)).c_str());
    Pin(cpu_);
    fesetenv(FE_DFL_ENV);  // whoever starts it may have told the CPU to flush denormals
    Run();
  }).detach();
}

void Worker::Attach(View* view, int index) {
  bool asleep;
  {
    std::lock_guard<std::mutex> lock(mu_);
    tokens_.push_back({view, index});
    waiting_.fetch_add(1, std::memory_order_release);
    asleep = asleep_;
  }
  if (asleep) wake_.notify_one();
}

void Worker::Run() {
  for (;;) {
    const int64_t until = NowNs() + kSpinNs;
    while (waiting_.load(std::memory_order_acquire) == 0 && NowNs() < until) {
      sched_yield();
    }
    Token token;
    {
      std::unique_lock<std::mutex> lock(mu_);
      asleep_ = true;
      wake_.wait(lock, [this] { return !tokens_.empty(); });
      asleep_ = false;
      token = tokens_.front();
      tokens_.pop_front();
      waiting_.fetch_sub(1, std::memory_order_relaxed);
    }
    token.view->Drain(token.index);
  }
}

void Cores::Set(std::vector<std::vector<int>> cpus) {
  cpus_ = std::move(cpus);
  workers_.resize(cpus_.size() * 2);
  int highest = 0;
  for (auto& core : cpus_)
    for (int cpu : core) highest = std::max(highest, cpu);
  slots_.assign(highest + 1, -1);
  for (size_t core = 0; core < cpus_.size(); core++)
    for (size_t thread = 0; thread < cpus_[core].size(); thread++)
      slots_[cpus_[core][thread]] = static_cast<int>(thread == 1 ? cpus_.size() + core : core);
}

int Cores::cpu(int slot) const {
  const auto& core = cpus_[slot % cpus_.size()];
  return slot >= count() && core.size() > 1 ? core[1] : core[0];
}

Worker* Cores::worker(int slot) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!workers_[slot]) workers_[slot] = std::make_unique<Worker>(cpu(slot), cpu(slot));
  return workers_[slot].get();
}

Cores& TheCores() {
  static Cores* cores = new Cores;  // never destroyed: workers outlive main()
  return *cores;
}

View::View(int threads, std::vector<int> slots) : threads_(threads), slots_(std::move(slots)) {
  attached_.resize(slots_.size());
  CPU_ZERO(&mask_);
  // the caller of a view on all cores stands where the job's own mask lets it, on any sibling
  covers_all_ = static_cast<int>(slots_.size()) == TheCores().count();
  for (int slot : slots_) {
    if (covers_all_)
      for (int cpu : TheCores().cpus()[slot % TheCores().count()]) CPU_SET(cpu, &mask_);
    else
      CPU_SET(TheCores().cpu(slot), &mask_);
  }
  workers_.resize(slots_.size());
}

void View::Schedule(std::function<void()> task) {
  int chosen = -1;
  Worker* worker = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    tasks_.push_back(std::move(task));
    if (attached_count_ < slots_.size()) {
      // The caller runs a part of the work itself before it waits, so its own core comes last.
      const int mine = TheCores().SlotOfCpu(sched_getcpu());
      int last_resort = -1;
      for (size_t tried = 0; tried < slots_.size() && chosen < 0; tried++) {
        const size_t index = (next_ + tried) % slots_.size();
        if (attached_[index]) continue;
        if (slots_[index] == mine)
          last_resort = static_cast<int>(index);
        else
          chosen = static_cast<int>(index);
      }
      if (chosen < 0) chosen = last_resort;
      attached_[chosen] = 1;
      attached_count_++;
      next_ = chosen + 1;
      if (!workers_[chosen]) workers_[chosen] = TheCores().worker(slots_[chosen]);
      worker = workers_[chosen];
    }
  }
  if (worker) worker->Attach(this, chosen);
}

void View::Drain(int index) {
  tl_view = this;
  tl_index = index;
  Mark(slots_[index]);
  CounterGroup* const group = group_.load(std::memory_order_acquire);
  const Reading before = group ? ReadCounters(group) : Reading{};
  for (;;) {
    std::function<void()> task;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (tasks_.empty()) {
        if (group) counts_.Add(Between(*group, before, ReadCounters(group)));
        attached_[index] = 0;
        attached_count_--;
        break;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
  tl_view = nullptr;
  tl_index = -1;
}

int View::CurrentWorker() const { return tl_view == this ? tl_index : -1; }

int View::TakeUsed(uint64_t used[kMaxSlots / 64]) {
  int count = 0;
  for (int word = 0; word < kMaxSlots / 64; word++) {
    used[word] = 0;
    if (used_[word].load(std::memory_order_relaxed))
      used[word] = used_[word].exchange(0, std::memory_order_relaxed);
    count += __builtin_popcountll(used[word]);
  }
  return count;
}

void View::Count(CounterGroup* group) {
  std::lock_guard<std::mutex> lock(mu_);
  counts_ = Counts{};
  group_.store(group, std::memory_order_release);
}

Counts View::TakeCounts() {
  const int64_t until = NowNs() + kSettleNs;
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (attached_count_ == 0 || NowNs() >= until) {
        if (attached_count_ > 0) counts_.complete = false;
        group_.store(nullptr, std::memory_order_release);
        return counts_;
      }
    }
    sched_yield();
  }
}

View* FindView(int threads, const std::vector<int>& slots) {
  static auto* mu = new std::mutex;
  static auto* views = new std::map<std::pair<int, std::vector<int>>, std::unique_ptr<View>>;
  std::lock_guard<std::mutex> lock(*mu);
  auto& view = (*views)[{threads, slots}];
  if (!view) view = std::make_unique<View>(threads, slots);
  return view.get();
}

namespace {
thread_local const View* tl_stand = nullptr;  // null: the mask the thread was born with
bool IsMainThread() {
  static thread_local const bool main = syscall(SYS_gettid) == getpid();
  return main;
}
void StandOnAll() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (auto& core : TheCores().cpus())
    for (int cpu : core) CPU_SET(cpu, &all);
  sched_setaffinity(0, sizeof all, &all);
  tl_stand = nullptr;
}
}  // namespace

Stand::Stand(const View& view) {
  const View* now = tl_stand;
  if (now == &view || (view.covers_all() && (!now || now->covers_all()))) return;
  tl_stand = &view;
  sched_setaffinity(0, sizeof(cpu_set_t), &view.mask());
  restore_ = IsMainThread();  // threads that Python starts later inherit the main thread's mask
}

Stand::~Stand() {
  if (restore_) StandOnAll();
}

void LeaveStand() {
  if (tl_stand && !tl_stand->covers_all()) StandOnAll();
}

}  // namespace dltune
