// What a graph sends another task in one run, handed to the transport in a planned order, and no more
// at once than a window of bytes that it has not taken yet. So a late request of an early transfer
// does not find the line full of later ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace dltune {

class Handover {
 public:
  // The first is handed over whatever its size.
  explicit Handover(int64_t window) : window_(window) {}

  // The transfer of this number, from 0 on, is ready; `hand` gives it to the transport, maybe on
  // another thread and later, after all of lower numbers. One that comes again, as when a run goes
  // through the body of a loop once more, has had its turn and goes at once.
  void Arrive(int number, int64_t bytes, std::function<void()> hand);
  // The transport has taken so many bytes of what was handed to it.
  void Taken(int64_t bytes);
  // Nothing waits any more: what is here is handed over now, what comes later at once.
  void Open();
  // Whether something waits and nothing has moved since the last look, or since one more for each
  // 10 MiB under way.
  bool stuck();

 private:
  struct Waiting {
    int64_t bytes;
    std::function<void()> hand;
  };

  void Pump();
  bool Take(Waiting* next);

  const int64_t window_;
  std::mutex mu_;
  std::map<int, Waiting> waiting_;
  int next_ = 0;
  int64_t under_way_ = 0, looks_ = 0;  // since the last move
  bool open_ = false, handing_ = false;
};

// The order of transfers to a task ("/job:worker/task:0"), and the window; from dltune's orders.
// Ranks follow the order in which tensors are added. -1: the tensor stands in no order.
void AddToOrder(const std::string& receiver, const std::string& tensor);
int RankOf(const std::string& receiver, const std::string& tensor);
bool HasOrders();
void SetWindow(int64_t bytes);
// Has `act` called with each order of a transfer. For a static object: it comes before all orders.
void WhenOrdered(void (*act)());

// Has something called once, when a run is given up or over; false: it is already.
using WhenOver = std::function<bool(std::function<void()>)>;

// The handover of a graph to a receiver in a run, which has an address of its own. It is opened and
// forgotten when the run is over; one that has waited for ten seconds without a move, and ten more
// for each 10 MiB under way, is opened, and said to be.
std::shared_ptr<Handover> HandoverOf(const void* run, int64_t graph, const std::string& receiver,
                                     const WhenOver& when_over);

}  // namespace dltune
