#include "admission.h"

#include <memory>

#include "channel.h"

namespace dltune {
namespace {

struct Waiter {
  std::condition_variable admitted;
  Admission admission;
  bool is_in = false;
};

struct Gate {
  std::mutex mu;
  std::unique_ptr<Scheduler> scheduler;
  std::unordered_map<uint64_t, Waiter*> waiting;
  std::vector<Admission> out;
  uint64_t tickets = 0, admitted = 0, seconds = 0, events = 0, in_flight_sum = 0;
};

Gate& TheGate() {
  static Gate* gate = new Gate;
  return *gate;
}

// One for all snapshots, which share the cores; what differs between them is in each op's `Work`.
Scheduler& SchedulerOf(Gate& gate) {
  if (!gate.scheduler) {
    std::vector<int> hardware;
    for (auto& core : TheCores().cpus()) hardware.push_back(static_cast<int>(core.size()));
    Options options;
    options.hyperthreads = true;
    gate.scheduler = std::make_unique<Scheduler>(g_tiles.data(), hardware.data(),
                                                 static_cast<int>(hardware.size()), options);
  }
  return *gate.scheduler;
}

// With the lock held: admits whom it can, and counts the event.
void Decide(Gate& gate, double now) {
  gate.out.clear();
  gate.scheduler->decide(now, &gate.out);
  for (const Admission& admission : gate.out) {
    Waiter* waiter = gate.waiting[admission.ticket];
    waiter->admission = admission;
    waiter->is_in = true;
    waiter->admitted.notify_one();
    gate.waiting.erase(admission.ticket);
    gate.admitted++;
    gate.seconds += admission.second;
    gate.events++;
    gate.in_flight_sum += gate.scheduler->running_count();
  }
}

}  // namespace

Admitted::Admitted(const OpOrder& order) {
  Gate& gate = TheGate();
  Waiter waiter;
  {
    std::unique_lock<std::mutex> lock(gate.mu);
    Scheduler& scheduler = SchedulerOf(gate);
    ticket_ = gate.tickets++;
    scheduler.ready(ticket_, order.work);
    gate.waiting[ticket_] = &waiter;
    Decide(gate, NowNs() * 1e-9);
    if (!waiter.is_in) {
      const int64_t since = NowNs();
      waiter.admitted.wait(lock, [&] { return waiter.is_in; });
      waited_ = NowNs() - since;
    }
  }
  std::vector<int> slots;
  const int offset = waiter.admission.second ? TheCores().count() : 0;
  waiter.admission.cores.each([&](int core) { slots.push_back(offset + core); });
  view_ = FindView(waiter.admission.threads, slots);
}

Admitted::~Admitted() {
  Gate& gate = TheGate();
  std::lock_guard<std::mutex> lock(gate.mu);
  const double now = NowNs() * 1e-9;
  gate.scheduler->finished(ticket_, now);
  gate.events++;
  gate.in_flight_sum += gate.scheduler->running_count();
  Decide(gate, now);
}

std::string AdmissionReport() {
  Gate& gate = TheGate();
  std::lock_guard<std::mutex> lock(gate.mu);
  std::string out = "{\"admitted\":" + std::to_string(gate.admitted) +
                    ",\"second_threads\":" + std::to_string(gate.seconds) + ",\"in_flight\":" +
                    std::to_string(gate.events ? double(gate.in_flight_sum) / gate.events : 0.0) +
                    ",\"avoided\":[";
  bool first = true;
  if (gate.scheduler)
    gate.scheduler->interference().each([&](int a, int b) {
      out += (first ? "[" : ",[") + Quote(KeyOf(a)) + "," + Quote(KeyOf(b)) + "]";
      first = false;
    });
  return out + "]}";
}

}  // namespace dltune
