// What is known of ops outlives the snapshot under which it was seen, and what a snapshot asks for
// ends with it. Prints AdmissionReport.
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include "core/admission.h"
#include "core/execution.h"

namespace {

void Obey(const std::string& line) {
  const std::string complaint = dltune::Obey(line);
  if (!complaint.empty()) std::cerr << complaint << "\n", abort();
}

// A snapshot in which these ops are admitted, each on one of two cores for so many seconds.
void Give(int version, bool hyperthreads,
          std::initializer_list<std::pair<const char*, const char*>> ops) {
  Obey("begin\t" + std::to_string(version));
  Obey("admission\t1");
  Obey(std::string("hyperthreads\t") + (hyperthreads ? "1" : "0"));
  for (auto [key, seconds] : ops)
    Obey(std::string("corun\t") + key + "\t" + seconds + "\t1:0:" + seconds + "\t1:0:" + seconds);
  Obey("end");
}

const dltune::OpOrder& Order(const char* key) { return *dltune::OrdersFor(0)->Find(key); }

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Both take three times as long as predicted beside each other.
void Disturb(const char* a, const char* b) {
  for (int i = 0; i < 3; i++) {
    dltune::Admitted first(Order(a)), second(Order(b));
    Sleep(30);
  }
}

}  // namespace

int main() {
  alarm(120);
  Obey("core\t0\t0,0");
  Obey("core\t1\t1,1");
  Obey("cores");
  Give(1, false, {{"x", "0.01"}, {"y", "0.01"}});
  Disturb("x", "y");
  Give(2, true, {{"z", "1000"}, {"y", "1000"}, {"small", "1"}});
  {
    // y was disturbed by x, not by what stands in its place here
    dltune::Admitted z(Order("z")), y(Order("y"));
    // no core is idle: this snapshot lets the shortest op onto a second hardware thread
    std::thread([] { dltune::Admitted small(Order("small")); }).join();
  }
  Give(3, false, {{"z", "1000"}, {"y", "1000"}, {"small", "1"}});
  {
    auto z = std::make_unique<dltune::Admitted>(Order("z"));
    auto y = std::make_unique<dltune::Admitted>(Order("y"));
    std::thread waiting([] { dltune::Admitted small(Order("small")); });
    Sleep(30);
    z.reset();
    waiting.join();
  }
  std::cout << dltune::AdmissionReport().text << std::endl;
  _exit(0);
}
