// Admission by strategies 3 and 4 inside the job: executor threads bring ready ops, wait
// until the scheduler of corun.h admits them, and run them on the cores it gave.
#pragma once

#include "json.h"
#include "orders.h"

namespace dltune {

class Admitted {
 public:
  // Blocks until the op may run. Nothing it runs may wait for another op that needs admission.
  explicit Admitted(const OpOrder& order);
  ~Admitted();
  View* view() const { return view_; }
  int64_t waited() const { return waited_; }  // ns

 private:
  uint64_t ticket_;
  int64_t waited_ = 0;
  View* view_ = nullptr;
};

// What was admitted so far, as JSON: ops, mean ops in flight over its events (Fig. 4 of the paper),
// pairs of keys that disturb each other.
Json AdmissionReport();

}  // namespace dltune
