#include "orders.h"

#include <cstdlib>
#include <map>
#include <sstream>

#include "execution.h"

namespace dltune {

// What threads use is never destroyed: they run on while the process exits.
std::vector<int>& g_tiles = *new std::vector<int>;
std::atomic<int> g_intra{0}, g_inter{0};
std::atomic<bool> g_count_bytes{false};

namespace {

// The snapshots in turn. Superseded ones are kept: executions may still hold them, and they are
// small beside one tensor.
struct Turn {
  std::vector<const Orders*> snapshots;
};
std::atomic<const Turn*> g_turn{nullptr};
std::mutex g_mu;
auto& g_versions = *new std::map<int64_t, const Orders*>;
bool g_leash = false;
auto& g_draft = *new std::unique_ptr<Orders>;
auto& g_draft_events = *new std::vector<CounterEvent>;  // of the draft's counters
auto& g_cpus = *new std::vector<std::vector<int>>;

std::vector<std::string> Split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

std::vector<int> Ints(const std::string& text) {
  std::vector<int> numbers;
  for (auto& part : Split(text, ',')) numbers.push_back(std::atoi(part.c_str()));
  return numbers;
}

// A thread count and comma-separated slots.
bool ParseView(const std::string& threads, const std::string& slots, OpOrder* order) {
  const int count = std::atoi(threads.c_str());
  auto list = Ints(slots);
  for (int slot : list)
    if (slot < 0 || slot >= 2 * TheCores().count()) return false;
  if (count < 1 || list.empty()) return false;
  order->view = FindView(count, list);
  return true;
}

// "threads:shared:seconds"
bool ParseCandidate(const std::string& text, Candidate* candidate) {
  const auto part = Split(text, ':');
  if (part.size() != 3) return false;
  candidate->threads = std::atoi(part[0].c_str());
  candidate->placement = part[1] == "1" ? Placement::shared : Placement::spread;
  candidate->seconds = std::atof(part[2].c_str());
  return candidate->threads >= 1;
}

void Commit() {
  if (!g_draft_events.empty()) g_draft->counters = FindCounterGroup(g_draft_events);
  g_draft_events.clear();
  const Orders* made = g_draft.release();
  g_versions[made->version] = made;
  g_turn.store(new Turn{{made}}, std::memory_order_release);
}

}  // namespace

const Orders* OrdersFor(uint64_t execution) {
  static const Orders* idle = new Orders;
  const Turn* turn = g_turn.load(std::memory_order_acquire);
  return turn ? turn->snapshots[execution % turn->snapshots.size()] : idle;
}

void LetGo() {
  Grant(int64_t{1} << 40);
  std::lock_guard<std::mutex> lock(g_mu);
  if (g_leash) g_turn.store(new Turn{{new Orders}}, std::memory_order_release);
}

std::string Obey(const std::string& line) {
  std::lock_guard<std::mutex> lock(g_mu);
  const auto field = Split(line, '\t');
  const size_t n = field.size();
  if (n == 0) return "";
  const std::string& word = field[0];
  auto flag = [&] { return n > 1 && field[1] == "1"; };
  if (word == "core" && n == 3) {  // in order of index: tile, cpus
    g_tiles.push_back(std::atoi(field[1].c_str()));
    g_cpus.push_back(Ints(field[2]));
  } else if (word == "cores") {
    TheCores().Set(g_cpus);
  } else if (word == "uniform" && n == 3) {
    g_intra = std::atoi(field[1].c_str());
    g_inter = std::atoi(field[2].c_str());
  } else if (word == "report") {
    Report("asked");
  } else if (word == "totals") {
    SendTotals();
  } else if (word == "leash") {
    g_leash = flag();
  } else if (word == "count") {
    g_count_bytes = flag();
  } else if (word == "begin" && n == 2) {
    g_draft = std::make_unique<Orders>();
    g_draft->version = std::atoll(field[1].c_str());
    g_draft_events.clear();
  } else if (word == "grant" && n == 2) {
    Grant(std::atoll(field[1].c_str()));
  } else if (word == "alternate" && n > 1) {
    auto turn = std::make_unique<Turn>();
    for (size_t i = 1; i < n; i++) {
      auto found = g_versions.find(std::atoll(field[i].c_str()));
      if (found == g_versions.end()) return "no such version: " + field[i];
      turn->snapshots.push_back(found->second);
    }
    g_turn.store(turn.release(), std::memory_order_release);
  } else if (!g_draft) {
    return "not understood: " + line;
  } else if (word == "events") {
    g_draft->events = flag();
  } else if (word == "discover") {
    g_draft->discover = flag();
  } else if (word == "serial") {
    g_draft->serial = flag();
  } else if (word == "gate") {
    g_draft->gate = flag();
  } else if (word == "hyperthreads") {
    g_draft->hyperthreads = flag();
  } else if (word == "turnstile") {
    g_draft->turnstile = flag();
  } else if (word == "small" && n == 2) {
    g_draft->small = std::atof(field[1].c_str());
  } else if (word == "counter" && n == 6) {  // type, config, config1, config2, exclude kernel
    if (g_draft_events.size() == kMaxCounters) return "too many counters in one group";
    auto number = [&](int i) { return std::strtoull(field[i].c_str(), nullptr, 10); };
    g_draft_events.push_back({static_cast<uint32_t>(number(1)), number(2), number(3), number(4),
                              field[5] == "1"});
  } else if (word == "target" && n == 2) {
    g_draft->targets.push_back(field[1]);
  } else if (word == "default" && n == 3) {
    if (!ParseView(field[1], field[2], &g_draft->fallback)) return "bad view: " + line;
  } else if (word == "op" && n == 4) {  // key, threads, slots
    if (!ParseView(field[2], field[3], &g_draft->ops[field[1]])) return "bad view: " + line;
  } else if (word == "corun" && n >= 4) {  // key, serial, strategy 2's choice, candidates...
    OpOrder& order = g_draft->ops[field[1]];
    order.gated = true;
    order.work.op = static_cast<int>(g_draft->ops.size()) - 1;
    order.work.serial = std::atof(field[2].c_str());
    if (!ParseCandidate(field[3], &order.work.choice)) return "bad candidate: " + line;
    for (size_t i = 4; i < n && order.work.count < kCandidates; i++)
      if (!ParseCandidate(field[i], &order.work.candidates[order.work.count++]))
        return "bad candidate: " + line;
  } else if (word == "end") {
    Commit();
  } else {
    return "not understood: " + line;
  }
  return "";
}

}  // namespace dltune
