// The CPU device of the job: TensorFlow's own, with each op's thread pool, place and time in
// dltune's hands.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>

#define EIGEN_USE_THREADS

#include "../../../native/core/admission.h"
#include "../../../native/core/channel.h"
#include "../../../native/core/child.h"
#include "capture.h"
#include "tensorflow/core/common_runtime/device_factory.h"
#include "tensorflow/core/common_runtime/threadpool_device.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/public/session_options.h"
#include "tsl/platform/threadpool_interface.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace dltune {
namespace {

using namespace tensorflow;

// A view as TensorFlow's thread pool.
class ViewPool : public tsl::thread::ThreadPoolInterface {
 public:
  explicit ViewPool(View* view) : view_(view) {}
  void Schedule(std::function<void()> task) override { view_->Schedule(std::move(task)); }
  void ScheduleWithHint(std::function<void()> task, int, int) override { Schedule(std::move(task)); }
  int NumThreads() const override { return view_->threads(); }
  int CurrentThreadId() const override { return view_->CurrentWorker(); }

 private:
  View* const view_;
};

// A view in the forms in which kernels ask for a thread pool.
struct Pool {
  explicit Pool(View* view)
      : pool(view), threads(&pool), eigen(threads.AsEigenThreadPool(), view->threads()) {
    workers.num_threads = view->threads();
    workers.workers = &threads;
  }
  ViewPool pool;
  tsl::thread::ThreadPool threads;
  Eigen::ThreadPoolDevice eigen;
  DeviceBase::CpuWorkerThreads workers;
};

Pool* PoolOf(View* view) {
  static auto* mu = new std::mutex;
  static auto* pools = new std::unordered_map<View*, Pool>;
  thread_local View* last_view = nullptr;
  thread_local Pool* last_pool = nullptr;
  if (view == last_view) return last_pool;
  std::lock_guard<std::mutex> lock(*mu);
  last_view = view;
  return last_pool = &pools->try_emplace(view, view).first->second;
}

thread_local Pool* tl_pool = nullptr;  // of the op that this thread runs now

int ThreadNumber() {
  static std::atomic<int> count{0};
  thread_local const int number = count++;
  return number;
}

// One op at a time. A kernel that turns out to wait for another must not stop the job: who waited
// too long goes on beside it, and says so once.
std::timed_mutex g_serial;
constexpr std::chrono::seconds kSerialPatience{10};

class Serially {
 public:
  Serially() {
    held_ = g_serial.try_lock_for(kSerialPatience);
    if (!held_) Complain("an op ran for over 10 s; dltune did not serialise other ops meanwhile");
  }
  ~Serially() {
    if (held_) g_serial.unlock();
  }

 private:
  bool held_ = false;
};

// What this thread has taken less what it has given back, in bytes, and the most of that.
thread_local int64_t tl_taken = 0, tl_most = 0;

// Counts live bytes exactly: a size stands before each block.
class CountingAllocator : public Allocator {
 public:
  explicit CountingAllocator(Allocator* base) : base_(base) {}
  std::string Name() override { return base_->Name(); }
  void* AllocateRaw(size_t alignment, size_t bytes) override {
    alignment = std::max(alignment, kHeader);
    auto* block = static_cast<char*>(base_->AllocateRaw(alignment, bytes + alignment));
    if (!block) return nullptr;
    auto* header = reinterpret_cast<Header*>(block + alignment - sizeof(Header));
    header->bytes = bytes;
    header->block = block;
    tl_most = std::max(tl_most, tl_taken += bytes);
    const int64_t live = g_live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = g_peak_bytes.load(std::memory_order_relaxed);
    while (live > peak && !g_peak_bytes.compare_exchange_weak(peak, live)) {
    }
    return block + alignment;
  }
  void DeallocateRaw(void* pointer) override {
    if (!pointer) return;
    auto* header = reinterpret_cast<Header*>(static_cast<char*>(pointer) - sizeof(Header));
    tl_taken -= header->bytes;
    g_live_bytes.fetch_sub(header->bytes, std::memory_order_relaxed);
    base_->DeallocateRaw(header->block);
  }
  AllocatorMemoryType GetMemoryType() const override { return base_->GetMemoryType(); }

 private:
  struct Header {
    size_t bytes;
    void* block;
  };
  static constexpr size_t kHeader = 64;  // keeps TensorFlow's own alignment
  Allocator* base_;
};

bool WaitsForInput(const OpKernel& kernel) {
  const auto type = kernel.type_string_view();
  return type.find("IteratorGetNext") != type.npos || type.find("QueueDequeue") != type.npos;
}

// The run of a cluster, timed.
class Clustered {
 public:
  Clustered(const OpKernel& kernel, OpKernelContext* context)
      : inputs_(HashCluster(kernel, context)), start_(NowNs()) {}
  ~Clustered() { NoteCluster(inputs_, NowNs() - start_); }

 private:
  const uint64_t inputs_;
  const int64_t start_;
};

// A cluster stands for the function that was compiled, so its type is no registered op.
bool IsCluster(const std::string& type) {
  const OpRegistrationData* registered = nullptr;
  return type.find("Xla") != std::string::npos ||
         !OpRegistry::Global()->LookUp(type, &registered).ok();
}

class TunedDevice : public ThreadPoolDevice {
 public:
  TunedDevice(const SessionOptions& options, const std::string& name, Allocator* allocator)
      : ThreadPoolDevice(options, name, Bytes(256 << 20), DeviceLocality(), allocator) {}

  const Eigen::ThreadPoolDevice* eigen_cpu_device() override {
    return tl_pool ? &tl_pool->eigen : ThreadPoolDevice::eigen_cpu_device();
  }
  const CpuWorkerThreads* tensorflow_cpu_worker_threads() const override {
    return tl_pool ? &tl_pool->workers : ThreadPoolDevice::tensorflow_cpu_worker_threads();
  }

  void Compute(OpKernel* kernel, OpKernelContext* context) override {
    if (InChild() || !Ordered()) {
      ThreadPoolDevice::Compute(kernel, context);
      return;
    }
    dltune::Node* node = NodeOf(*kernel);
    if (!node) {
      NoteUnmarked(kernel, context);
      return;
    }
    std::optional<Clustered> cluster;
    if (node->cluster) cluster.emplace(*kernel, context);
    const Entered entered = node->graph->Enter(context->step_id());
    const Orders& orders = *entered.orders;
    const bool records = entered.records();
    if (!records && !entered.steers()) {
      LeaveStand();
      ThreadPoolDevice::Compute(kernel, context);
      return;
    }
    const int64_t began = records ? NowNs() : 0;
    Key* key = FindVariant(node, HashInputs(context), [&] { return DescribeInputs(context); })->key;
    static const OpOrder none{};
    const OpOrder& order = entered.steers() && !node->waits ? OrderFor(node, key, &orders) : none;
    const std::vector<Given> given =
        records && !node->outputs_known ? Inputs(context) : std::vector<Given>();
    // the time that is dltune's own: all but the kernel's, and waiting, which is scheduling
    int64_t foreign = 0;
    if (order.by_admission && orders.admission && order.work.serial >= orders.small) {
      Admitted admitted(order);
      foreign = admitted.waited() + RunOn(admitted.view(), kernel, context, node, key, entered);
    } else if (orders.serial && entered.target && !node->waits) {
      Serially alone;
      RunOn(order.view, kernel, context, node, key, entered);
    } else {
      foreign = RunOn(order.view, kernel, context, node, key, entered);
    }
    if (!records || !context->status().ok()) return;
    if (key->output_bytes < 0) NoteOutputBytes(key, OutputBytes(context));
    if (!node->outputs_known) entered.AddOutputs(node, Outputs(context, given));
    entered.Spend(NowNs() - began - foreign);
  }

  void ComputeAsync(AsyncOpKernel* kernel, OpKernelContext* context,
                    AsyncOpKernel::DoneCallback done) override {
    if (!Ordered()) {
      ThreadPoolDevice::ComputeAsync(kernel, context, std::move(done));
      return;
    }
    dltune::Node* node = InChild() ? nullptr : NodeOf(*kernel);
    if (!node && WaitsForInput(*kernel)) {
      const int64_t start = NowNs();
      ThreadPoolDevice::ComputeAsync(kernel, context, [start, done] {
        g_waited_ns.fetch_add(NowNs() - start, std::memory_order_relaxed);
        done();
      });
      return;
    }
    const Entered entered = node ? node->graph->Enter(context->step_id()) : Entered{};
    if (!node || !entered.records()) {
      ThreadPoolDevice::ComputeAsync(kernel, context, std::move(done));
      return;
    }
    Key* key = FindVariant(node, HashInputs(context), [&] { return DescribeInputs(context); })->key;
    Event event{};
    event.node = node->index;
    event.key = key->id;
    event.threads = -1;
    event.thread = ThreadNumber();
    event.start = NowNs();
    ThreadPoolDevice::ComputeAsync(kernel, context, [=]() mutable {
      event.end = NowNs();
      event.live = g_live_bytes.load(std::memory_order_relaxed);
      entered.Add(event);
      if (context->status().ok()) {
        if (key->output_bytes < 0) NoteOutputBytes(key, OutputBytes(context));
        if (!node->outputs_known) entered.AddOutputs(node, Outputs(context, {}));
      }
      done();
    });
  }

 private:
  // Returns the kernel's own time in ns where it is recorded.
  int64_t RunOn(View* view, OpKernel* kernel, OpKernelContext* context, dltune::Node* node,
                Key* key, const Entered& entered) {
    const bool records = entered.records();
    Pool* const outer = tl_pool;
    Event event{};
    CounterGroup* const group = records ? entered.orders->counters : nullptr;
    Reading before;
    Counts counts;
    std::optional<Stand> stand;
    if (view) {
      stand.emplace(*view);
      tl_pool = PoolOf(view);
      if (records) view->TakeUsed(event.used);
      if (group) view->Count(group);
    } else if (!entered.steers()) {
      LeaveStand();
    }
    if (group) before = ReadCounters(group);
    const int64_t taken = tl_taken, outer_most = std::exchange(tl_most, tl_taken);
    if (records) event.start = NowNs();
    ThreadPoolDevice::Compute(kernel, context);
    if (records) event.end = NowNs();
    event.scratch = tl_most - std::max(tl_taken, taken);
    tl_most = std::max(tl_most, outer_most);
    if (group) counts = Between(*group, before, ReadCounters(group));
    if (view && records) {
      if (group) counts.Add(view->TakeCounts());
      const int slot = TheCores().SlotOfCpu(sched_getcpu());
      if (slot >= 0 && slot < kMaxSlots) view->Mark(slot);
      view->TakeUsed(event.used);
      event.threads = view->threads();
    }
    tl_pool = outer;
    stand.reset();
    if (records) {
      event.node = node->index;
      event.key = key->id;
      event.thread = ThreadNumber();
      event.live = g_live_bytes.load(std::memory_order_relaxed);
      entered.Add(event, group ? &counts : nullptr);
      if (group) {
        std::lock_guard<std::mutex> lock(group->mu);
        group->in_ops.Add(counts);
      }
    }
    return event.end - event.start;
  }

  static int64_t OutputBytes(OpKernelContext* context) {
    int64_t bytes = 0;
    for (int i = 0; i < context->num_outputs(); i++) {
      // outputs that are references, or not set on a dead branch, hold no memory of their own
      if (IsRefType(context->expected_output_dtype(i))) continue;
      const Tensor* output = context->mutable_output(i);
      if (output && output->IsInitialized()) bytes += output->TotalBytes();
    }
    return bytes;
  }

  // The memory of a tensor; none for strings and handles, which hold no values themselves.
  struct Given {
    const char* begin = nullptr;
    size_t bytes = 0;
  };

  static Given MemoryOf(const Tensor& tensor) {
    if (!tensor.IsInitialized() || !DataTypeCanUseMemcpy(tensor.dtype())) return {};
    const absl::string_view data = tensor.tensor_data();
    return {data.data(), data.size()};
  }

  static std::vector<Given> Inputs(OpKernelContext* context) {
    std::vector<Given> given(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); i++) {
      if (!context->has_input(i)) continue;
      given[i] = MemoryOf(context->input_is_ref(i) ? context->mutable_input(i, /*lock_held=*/false)
                                                   : context->input(i));
    }
    return given;
  }

  static std::vector<Output> Outputs(OpKernelContext* context, const std::vector<Given>& given) {
    std::vector<Output> outputs;
    for (int slot = 0; slot < context->num_outputs(); slot++) {
      const DataType dtype = context->expected_output_dtype(slot);
      Output output{DataTypeString(dtype), 0, -1};
      const Tensor* tensor = IsRefType(dtype) ? nullptr : context->mutable_output(slot);
      if (tensor && tensor->IsInitialized()) {
        output.bytes = tensor->TotalBytes();
        const char* begin = MemoryOf(*tensor).begin;
        for (size_t i = 0; i < given.size() && output.alias < 0; i++)
          if (given[i].begin <= begin && begin < given[i].begin + given[i].bytes)
            output.alias = static_cast<int>(i);
      }
      outputs.push_back(std::move(output));
    }
    return outputs;
  }

  // Kernels outside captured graphs: eager ops, and whole XLA clusters.
  void NoteUnmarked(OpKernel* kernel, OpKernelContext* context) {
    std::optional<Clustered> cluster;
    if (IsCluster(kernel->type_string())) cluster.emplace(*kernel, context);
    LeaveStand();
    const int64_t start = NowNs();
    ThreadPoolDevice::Compute(kernel, context);
    const int64_t took = NowNs() - start;
    (cluster ? g_compiled_ns : g_unmarked_ns).fetch_add(took, std::memory_order_relaxed);
    if (WaitsForInput(*kernel)) g_waited_ns.fetch_add(took, std::memory_order_relaxed);
  }
};

Allocator* CpuAllocator() {
  if (!g_count_bytes) return cpu_allocator();
  static auto* counting = new CountingAllocator(cpu_allocator());
  return counting;
}

// TensorFlow makes devices hundreds of times, for constant folding among others; each kind of
// setting is told once.
void Announce(const std::string& device) {
  if (InChild()) return;
  static auto& sent = *new std::set<std::string>;
  static std::mutex mu;
  std::lock_guard<std::mutex> lock(mu);
  if (sent.insert(device).second) Send([device] { return device; });
}

class TunedFactory : public DeviceFactory {
 public:
  absl::Status ListPhysicalDevices(std::vector<std::string>* devices) override {
    devices->push_back("/physical_device:CPU:0");
    return absl::OkStatus();
  }

  absl::Status CreateDevices(const SessionOptions& options, const std::string& prefix,
                             std::vector<std::unique_ptr<Device>>* devices) override {
    const int asked_intra = options.config.intra_op_parallelism_threads();
    const int asked_inter = options.config.inter_op_parallelism_threads();
    // The caller makes its inter-op pool from these same options after the devices, and never
    // from a constant object: this is the one place through which eager contexts and sessions
    // both pass, whatever the script has set.
    auto& config = const_cast<SessionOptions&>(options).config;
    if (g_intra > 0) config.set_intra_op_parallelism_threads(g_intra);
    if (g_inter > 0) config.set_inter_op_parallelism_threads(g_inter);
    int count = 1;
    auto found = options.config.device_count().find("CPU");
    if (found != options.config.device_count().end()) count = found->second;
    int intra = 0;
    for (int i = 0; i < count; i++) {
      devices->push_back(std::make_unique<TunedDevice>(
          options, prefix + "/device:CPU:" + std::to_string(i), CpuAllocator()));
      intra = devices->back()->tensorflow_cpu_worker_threads()->num_threads;
    }
    int inter = options.config.inter_op_parallelism_threads();
    if (inter == 0) inter = tsl::port::MaxParallelism();
    Announce(Object({{"type", "device"},
                     {"intra", intra},
                     {"inter", inter},
                     {"asked_intra", asked_intra},
                     {"asked_inter", asked_inter}}));
    return absl::OkStatus();
  }
};
REGISTER_LOCAL_DEVICE_FACTORY("CPU", TunedFactory, 90);  // TensorFlow's own has 60 and 70

}  // namespace

}  // namespace dltune

#define DLTUNE_API extern "C" __attribute__((visibility("default")))

// Connects to dltune at `socket` with `hello` (a JSON object in one line) and obeys its first
// orders. Returns nothing, or a complaint that stays valid.
DLTUNE_API const char* dltune_open(const char* socket, const char* hello) {
  static std::string complaint;
  complaint = dltune::OpenChannel(socket, hello);
  return complaint.c_str();
}

// Obeys one line of orders without a dltune beside the job (`dltune.apply`). Returns nothing, or a
// complaint that stays valid.
DLTUNE_API const char* dltune_obey(const char* line) {
  static std::string complaint;
  complaint = dltune::Obey(line);
  return complaint.c_str();
}

// Sends what is still held; for the end of the process.
DLTUNE_API void dltune_close() {
  dltune::CloseAll();
  dltune::Report("exit");
  dltune::Flush();
}
