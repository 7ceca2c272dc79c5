#include "orders.h"

#include <cmath>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

#include "execution.h"
#include "order_words.h"

namespace dltune {

// What threads use is never destroyed: they run on while the process exits.
std::vector<int>& g_tiles = *new std::vector<int>;
std::atomic<int> g_intra{0}, g_inter{0};
std::atomic<bool> g_count_bytes{false};

namespace {

// Most threads that a line may ask for: of one op, or of the framework.
constexpr int kMaxThreads = 1 << 16;

// The snapshots in turn. Superseded ones are never freed: executions may still hold them, and they
// are small beside one tensor.
using Turn = std::vector<const Orders*>;
std::atomic<const Turn*> g_turn{nullptr};
std::atomic<bool> g_ordered{false};

// What is told once, at the start, and orders no execution anything.
const auto& g_settings =
    *new std::set<std::string>{"core", "cores", "uniform", "count", "detach"};

std::mutex g_mu;
auto& g_versions = *new std::map<int64_t, const Orders*>;
bool g_detach = false;
auto& g_cpus = *new std::vector<std::vector<int>>;

// The snapshot between `begin` and `end`.
struct Draft {
  std::unique_ptr<Orders> orders;
  std::vector<CounterEvent> events;
  bool refused = false;
};
auto& g_draft = *new Draft;

// Numbers of keys, the same in all snapshots: what was seen of an op outlives its snapshot.
std::mutex g_numbers_mu;
auto& g_numbers = *new std::unordered_map<std::string, int>;
auto& g_keys = *new std::vector<std::string>;

int NumberOf(const std::string& key) {
  std::lock_guard<std::mutex> lock(g_numbers_mu);
  auto [found, fresh] = g_numbers.emplace(key, static_cast<int>(g_keys.size()));
  if (fresh) g_keys.push_back(key);
  return found->second;
}

// Words of systems. They are added while other files are initialised, maybe before this one is.
std::unordered_map<std::string, bool (*)(const Fields&)>& Words() {
  static auto& words = *new std::unordered_map<std::string, bool (*)(const Fields&)>;
  return words;
}

Fields Split(const std::string& text, char by) {
  Fields parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

bool Numbers(const std::string& text, int low, int high, std::vector<int>* out) {
  for (const std::string& part : Split(text, ',')) {
    out->emplace_back();
    if (!Number(part, low, high, &out->back())) return false;
  }
  return !out->empty() && text.back() != ',';
}

// Whatever the job's locale takes for a decimal point.
bool Seconds(const std::string& text, double* out) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  return (stream >> std::noskipws >> *out) && stream.peek() == EOF && std::isfinite(*out) &&
         *out >= 0;
}

template <typename Out>
bool Flag(const Fields& field, Out* out) {
  if (field.size() != 2 || (field[1] != "0" && field[1] != "1")) return false;
  *out = field[1] == "1";
  return true;
}

// A thread count and comma-separated slots.
bool ParseView(const std::string& threads, const std::string& slots, OpOrder* order) {
  int count = 0;
  std::vector<int> list;
  if (!Number(threads, 1, kMaxThreads, &count) ||
      !Numbers(slots, 0, 2 * TheCores().count() - 1, &list))
    return false;
  order->view = FindView(count, list);
  return true;
}

// "threads:shared:seconds"
bool ParseCandidate(const std::string& text, Candidate* candidate) {
  const Fields part = Split(text, ':');
  if (part.size() != 3 || (part[1] != "0" && part[1] != "1")) return false;
  candidate->placement = part[1] == "1" ? Placement::shared : Placement::spread;
  return Number(part[0], 1, kMaxThreads, &candidate->threads) &&
         Seconds(part[2], &candidate->seconds);
}

// Key, serial seconds, strategy 2's choice, candidates.
bool ParseWork(const std::string& key, const Fields& field, OpOrder* order) {
  *order = OpOrder{};
  Work& work = order->work;
  order->by_admission = true;
  work.op = NumberOf(key);
  if (!Seconds(field[2], &work.serial) || !ParseCandidate(field[3], &work.choice)) return false;
  if (field.size() > 4 + kCandidates) return false;
  for (size_t i = 4; i < field.size(); i++)
    if (!ParseCandidate(field[i], &work.candidates[work.count++])) return false;
  return true;
}

// type, config, config1, config2, whether the kernel's own work is left out
bool ParseCounter(const Fields& field, CounterEvent* event) {
  constexpr uint64_t kMost = UINT64_MAX;
  event->exclude_kernel = field[5] == "1";
  return Number<uint32_t>(field[1], 0, UINT32_MAX, &event->type) &&
         Number<uint64_t>(field[2], 0, kMost, &event->config) &&
         Number<uint64_t>(field[3], 0, kMost, &event->config1) &&
         Number<uint64_t>(field[4], 0, kMost, &event->config2) &&
         (field[5] == "0" || field[5] == "1");
}

void TakeTurns(Turn snapshots) {
  g_turn.store(new Turn(std::move(snapshots)), std::memory_order_release);
}

void Commit() {
  Orders& orders = *g_draft.orders;
  if (!g_draft.events.empty()) orders.counters = FindCounterGroup(g_draft.events);
  for (auto& [key, order] : orders.ops) {
    order.of = &orders;
    orders.names_nodes |= key[0] == '@';
    order.work.first_threads = !orders.hyperthreads;
  }
  g_versions[orders.version] = &orders;
  TakeTurns({g_draft.orders.release()});
}

// index of core: tile, cpus
bool AddCore(const Fields& field) {
  int tile = 0;
  std::vector<int> cpus;
  if (TheCores().count() > 0 || g_cpus.size() == kMaxSlots / 2) return false;
  if (!Number(field[1], 0, kMaxCores - 1, &tile)) return false;
  if (!Numbers(field[2], 0, CPU_SETSIZE - 1, &cpus)) return false;
  g_tiles.push_back(tile);
  g_cpus.push_back(std::move(cpus));
  return true;
}

bool Alternate(const Fields& field) {
  Turn snapshots;
  for (size_t i = 1; i < field.size(); i++) {
    int64_t version = 0;
    if (!Number<int64_t>(field[i], 0, INT64_MAX, &version)) return false;
    auto found = g_versions.find(version);
    if (found == g_versions.end()) return false;
    snapshots.push_back(found->second);
  }
  TakeTurns(std::move(snapshots));
  return true;
}

// A line of a snapshot.
bool Add(const Fields& field) {
  Orders& orders = *g_draft.orders;
  const std::string& word = field[0];
  const size_t n = field.size();
  std::string text;
  if (word == "events") return Flag(field, &orders.events);
  if (word == "discover") return Flag(field, &orders.discover);
  if (word == "serial") return Flag(field, &orders.serial);
  if (word == "admission") return Flag(field, &orders.admission);
  if (word == "hyperthreads") return Flag(field, &orders.hyperthreads);
  if (word == "barrier") return Flag(field, &orders.barrier);
  if (word == "flush") return Flag(field, &orders.flush);
  if (word == "small" && n == 2) return Seconds(field[1], &orders.small);
  if (word == "default" && n == 3) return ParseView(field[1], field[2], &orders.fallback);
  if (word == "counter" && n == 6 && g_draft.events.size() < kMaxCounters) {
    g_draft.events.emplace_back();
    return ParseCounter(field, &g_draft.events.back());
  }
  if (n < 2 || !Unescape(field[1], &text)) return false;
  if (word == "target" && n == 2) return orders.targets.push_back(text), true;
  if (word == "op" && n == 4) return ParseView(field[2], field[3], &orders.ops[text]);
  if (word == "corun" && n >= 4) return ParseWork(text, field, &orders.ops[text]);
  return false;
}

bool Understood(const Fields& field) {
  const std::string& word = field[0];
  const size_t n = field.size();
  if (word == "core") return n == 3 && AddCore(field);
  if (word == "cores") {
    if (n != 1 || g_cpus.empty() || TheCores().count() > 0) return false;
    return TheCores().Set(g_cpus), true;
  }
  if (word == "uniform") {
    int intra = 0, inter = 0;
    if (n != 3 || !Number(field[1], 0, kMaxThreads, &intra) ||
        !Number(field[2], 0, kMaxThreads, &inter))
      return false;
    g_intra = intra;
    g_inter = inter;
    return true;
  }
  if (word == "report") return Report("asked"), true;
  if (word == "totals") return SendTotals(), true;
  if (word == "detach") return Flag(field, &g_detach);
  if (word == "count") return Flag(field, &g_count_bytes);
  if (word == "grant") {
    int64_t count = 0;
    return n == 2 && Number<int64_t>(field[1], 0, INT32_MAX, &count) && (Grant(count), true);
  }
  if (word == "alternate") return n > 1 && Alternate(field);
  if (auto system = Words().find(word); system != Words().end()) return system->second(field);
  if (word == "begin") {
    g_draft = Draft{std::make_unique<Orders>(), {}, false};
    return n == 2 && Number<int64_t>(field[1], 0, INT64_MAX, &g_draft.orders->version);
  }
  if (!g_draft.orders) return false;
  if (word != "end") return Add(field);
  const bool good = n == 1 && !g_draft.refused;
  if (good) Commit();
  g_draft = Draft{};
  return good;
}

}  // namespace

OrderWord::OrderWord(const std::string& word, bool (*obey)(const Fields& field)) {
  Words().emplace(word, obey);
}

bool Unescape(const std::string& text, std::string* out) {
  out->clear();
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '\\') {
      *out += text[i];
      continue;
    }
    if (++i == text.size()) return false;
    const char c = text[i] == 't' ? '\t' : text[i] == 'n' ? '\n' : text[i] == '\\' ? '\\' : 0;
    if (!c) return false;
    *out += c;
  }
  return true;
}

const Orders* OrdersFor(uint64_t execution) {
  static const Orders* idle = new Orders;
  const Turn* turn = g_turn.load(std::memory_order_acquire);
  return turn ? (*turn)[execution % turn->size()] : idle;
}

bool Ordered() { return g_ordered.load(std::memory_order_relaxed); }

std::string KeyOf(int number) {
  std::lock_guard<std::mutex> lock(g_numbers_mu);
  return g_keys.at(number);
}

void LetGo() {
  Grant(int64_t{1} << 40);
  std::lock_guard<std::mutex> lock(g_mu);
  if (g_detach) TakeTurns({new Orders});
}

std::string Obey(const std::string& line) {
  std::lock_guard<std::mutex> lock(g_mu);
  const Fields field = Split(line, '\t');
  if (!field.empty() && !g_settings.count(field[0])) g_ordered = true;
  if (field.empty() || Understood(field)) return "";
  g_draft.refused = true;
  return "unknown order: " + line;
}

}  // namespace dltune
