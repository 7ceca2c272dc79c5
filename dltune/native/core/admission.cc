#include "admission.h"

#include <memory>

namespace dltune {
namespace {

struct Waiter {
  std::condition_variable admitted;
  Admission admission;
  bool is_in = false;
};

struct AdmissionControl {
  std::mutex mu;
  std::unique_ptr<Scheduler> scheduler;
  std::unordered_map<uint64_t, Waiter*> waiting;
  std::vector<Admission> out;
  uint64_t tickets = 0, admitted = 0, seconds = 0, events = 0, in_flight_sum = 0;
};

AdmissionControl& TheControl() {
  static AdmissionControl* control = new AdmissionControl;
  return *control;
}

// One for all snapshots, which share the cores; what differs between them is in each op's `Work`.
Scheduler& SchedulerOf(AdmissionControl& control) {
  if (!control.scheduler) {
    std::vector<int> hardware;
    for (auto& core : TheCores().cpus()) hardware.push_back(static_cast<int>(core.size()));
    Options options;
    options.hyperthreads = true;
    control.scheduler = std::make_unique<Scheduler>(g_tiles.data(), hardware.data(),
                                                    static_cast<int>(hardware.size()), options);
  }
  return *control.scheduler;
}

// With the lock held: admits whom it can, and counts the event.
void Decide(AdmissionControl& control, double now) {
  control.out.clear();
  control.scheduler->decide(now, &control.out);
  for (const Admission& admission : control.out) {
    Waiter* waiter = control.waiting[admission.ticket];
    waiter->admission = admission;
    waiter->is_in = true;
    waiter->admitted.notify_one();
    control.waiting.erase(admission.ticket);
    control.admitted++;
    control.seconds += admission.second;
    control.events++;
    control.in_flight_sum += control.scheduler->running_count();
  }
}

}  // namespace

Admitted::Admitted(const OpOrder& order) {
  AdmissionControl& control = TheControl();
  Waiter waiter;
  {
    std::unique_lock<std::mutex> lock(control.mu);
    Scheduler& scheduler = SchedulerOf(control);
    ticket_ = control.tickets++;
    scheduler.ready(ticket_, order.work);
    control.waiting[ticket_] = &waiter;
    Decide(control, NowNs() * 1e-9);
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
  AdmissionControl& control = TheControl();
  std::lock_guard<std::mutex> lock(control.mu);
  const double now = NowNs() * 1e-9;
  control.scheduler->finished(ticket_, now);
  control.events++;
  control.in_flight_sum += control.scheduler->running_count();
  Decide(control, now);
}

Json AdmissionReport() {
  AdmissionControl& control = TheControl();
  std::lock_guard<std::mutex> lock(control.mu);
  const double in_flight = control.events ? double(control.in_flight_sum) / control.events : 0.0;
  std::vector<Json> avoided;
  if (control.scheduler)
    control.scheduler->interference().each(
        [&](int a, int b) { avoided.push_back(List({KeyOf(a), KeyOf(b)})); });
  return Object({{"admitted", control.admitted},
                 {"second_threads", control.seconds},
                 {"in_flight", in_flight},
                 {"avoided", List(avoided)}});
}

}  // namespace dltune
